"""Kills the processes of a running installation, then proves that no call was doubled, lost or misattributed."""
