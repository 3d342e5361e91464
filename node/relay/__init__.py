"""Block relay: coded chunks through competing clusters, with proof of who did what (Marlin)."""
