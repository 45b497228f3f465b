# Sourced by the tools: choose a Python, and have lib/environment.py prepare what they run in.
#
# Gives: $checkout (where the repository is) and `environment [GROUP]`, which prints the path of the
# Python to run: one that has hansard installed and, if a group is named, that group's packages.
# Written for bash 3.2, the one that macOS has.

# `cd` obeys and prints CDPATH; and another project's PYTHONPATH would put its packages before ours.
unset CDPATH PYTHONHOME PYTHONPATH
# Without kept bytecode, each process compiles the modules: a process that opens a store then takes five times
# as long to start, and the tests and the campaign start thousands.
unset PYTHONDONTWRITEBYTECODE

checkout="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)"

# Print the version of the Python $1; fail if it is too old, or none.
python_version() {
    "$1" -c 'import sys
print("%d.%d.%d" % sys.version_info[:3])
sys.exit(sys.version_info < (3, 11))' </dev/null 2>/dev/null
}

# Print the Python to build with: $PYTHON and no other if it is set, else the first that will do.
choose_python() {
    local candidate version seen=""
    if [ -n "${PYTHON:-}" ]; then
        if version="$(python_version "$PYTHON")"; then
            printf '%s\n' "$PYTHON"
            return 0
        fi
        seen="PYTHON=$PYTHON is ${version:-not a Python that runs}"
    else
        for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
            if version="$(python_version "$candidate")"; then
                printf '%s\n' "$candidate"
                return 0
            fi
            [ -z "$version" ] || seen="${seen:+$seen, }$candidate is $version"
        done
        seen="${seen:-found none}"
    fi
    printf '%s needs Python 3.11 or newer: %s; install one, or name it: PYTHON=/path/to/python\n' \
        "tools/${0##*/}" "$seen" >&2
    return 1
}

environment() {
    local python
    python="$(choose_python)" || return 1
    "$python" "$checkout/tools/lib/environment.py" "$@" </dev/null
}
