"""Cluster selectors that come with bruit: which of its options a chunk goes through.

Each is a plugin of its own. All are pure: what they are asked and the generator they are given
decide, and nothing else but, where one reads it, a reputation file.

A selector that always takes what it likes best never learns that another has become better, and a
cluster that has never been used has nothing to be liked for. Therefore `qos` and `mixed` explore
(`favourite.explored`), and `cheapest` gives a cluster that failed another chance now and then.
"""
