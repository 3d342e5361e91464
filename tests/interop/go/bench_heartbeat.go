package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"
)

// HeartbeatLog gathers durations of heartbeats from the log of the pubsub. The library times its
// whole heartbeat function, from its first statement to its return, and warns "slow heartbeat"
// with the duration "took" where that is over a limit, which is set to nothing here. Making and
// handling the record comes after the time was taken.
type HeartbeatLog struct {
	slog.Handler // of everything else that the pubsub logs
	lock         sync.Mutex
	seconds      []float64
}

func newHeartbeatLog() *HeartbeatLog {
	// The library's own default logs errors only.
	others := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})
	return &HeartbeatLog{Handler: others, seconds: []float64{}}
}

func (l *HeartbeatLog) logger() *slog.Logger {
	return slog.New(l)
}

// Enabled lets warnings in; below, a record costs as little as by default.
func (l *HeartbeatLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (l *HeartbeatLog) Handle(ctx context.Context, record slog.Record) error {
	if record.Message != "slow heartbeat" {
		if l.Handler.Enabled(ctx, record.Level) {
			return l.Handler.Handle(ctx, record)
		}
		return nil
	}
	record.Attrs(func(attribute slog.Attr) bool {
		if took, ok := attribute.Value.Any().(time.Duration); ok && attribute.Key == "took" {
			l.lock.Lock()
			l.seconds = append(l.seconds, took.Seconds())
			l.lock.Unlock()
		}
		return true
	})
	return nil
}

// drain returns the durations since it was last called.
func (l *HeartbeatLog) drain() []float64 {
	l.lock.Lock()
	defer l.lock.Unlock()
	taken := l.seconds
	l.seconds = []float64{}
	return taken
}
