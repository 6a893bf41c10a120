#!/bin/sh
# A Slurm prolog (slurm.conf: Prolog=/etc/slurm/prolog.d/*) that drains a node with a GPU no job can use.
#
# Slurm drains a node whose prolog ends with anything but 0. So this ends with 1 only where envaudit says
# so in the words of a listed rule; a missing interpreter or a damaged file drains nobody.

PYTHON=${ENVAUDIT_PYTHON:-/usr/bin/python3}
PYZ=${ENVAUDIT_PYZ:-/opt/envaudit/envaudit.pyz}

line=$("$PYTHON" -B "$PYZ" gate --prolog)
code=$?
case "$code $line" in
    "1 EA"[0-9][0-9][0-9]" "*)
        # slurmd logs this; the log of the system has it too.
        echo "print envaudit: $line"
        exit 1
        ;;
esac
exit 0
