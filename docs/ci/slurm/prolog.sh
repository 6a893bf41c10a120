#!/bin/sh
# A Slurm prolog (slurm.conf: Prolog=/etc/slurm/prolog.d/*) that drains a node with a GPU no job can use.
#
# Slurm drains a node whose prolog ends with anything but 0. So this ends with 1 only where envaudit says
# so in the words of a listed rule; a missing interpreter, a half-copied file or a disk that hangs drains nobody.
# -I: neither PYTHONPATH nor the modules of a home folder are believed. The gate ends within 8 s by itself;
# `timeout` holds where it cannot even begin, as on a file server that does not answer.

PYTHON=${ENVAUDIT_PYTHON:-/usr/bin/python3}
PYZ=${ENVAUDIT_PYZ:-/opt/envaudit/envaudit.pyz}

line=$(timeout -k 1 10 "$PYTHON" -I -B "$PYZ" gate --prolog)
code=$?
case "$code $line" in
    "1 EA"[0-9][0-9][0-9]" "*)
        # slurmd logs this; the log of the system has it too.
        echo "print envaudit: $line"
        exit 1
        ;;
esac
exit 0
