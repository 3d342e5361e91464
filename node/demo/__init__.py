"""The demonstration: a block through a mesh of real hosts in several processes on this machine."""
