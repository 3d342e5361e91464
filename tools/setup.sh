#!/bin/sh
# Make .venv: the packages of requirements.lock, each checked against its hash,
# and this project on top of them, editable. A second run finds the stamp of the
# first one and does nothing.
#
#   PYTHON=python3.12 tools/setup.sh    to choose the interpreter
set -eu
cd "$(dirname "$0")/.."

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# --- is there anything to do? -------------------------------------------------

# The folder is part of the key: a moved environment has scripts that point nowhere.
key=$({ pwd && cat requirements.lock pyproject.toml tools/setup.sh; } | cksum)
stamp=.venv/.installed
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
    exit 0
fi

# --- an interpreter -----------------------------------------------------------

# 3.14 and later: some locked packages have no wheels for them yet.
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

python=
for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if fits "$name"; then
        python=$("$name" -c 'import sys; print(sys.executable)')
        break
    fi
done
if [ -z "$python" ] && [ -z "${PYTHON:-}" ] && have uv; then
    uv python install 3.13
    python=$(uv python find 3.13)
fi
[ -n "$python" ] || fail "no Python from 3.11 to 3.13 found (tried: ${PYTHON:-python3 python3.13 python3.12 python3.11}).
Install one, or name it: PYTHON=/path/to/python3 make setup"

# --- what the machine must have -----------------------------------------------

# fastecdsa, which libp2p needs, has no wheels: it is compiled against GMP.
if [ "$(uname)" = Darwin ] && have brew && brew --prefix gmp >/dev/null 2>&1; then
    gmp=$(brew --prefix gmp)
    export CFLAGS="-I$gmp/include ${CFLAGS:-}" LDFLAGS="-L$gmp/lib ${LDFLAGS:-}"
fi

config() { "$python" -c "import sysconfig; print(sysconfig.get_$1 or '')"; }
compiler=${CC:-$(config 'config_var("CC")')}
include=$(config 'path("include")')
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# compiles HEADER [LIBRARY]: does a program with this header compile and link?
compiles() {
    probe=$(mktemp -d)
    printf '#include <stdio.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" >"$probe/probe.c"
    # Unquoted on purpose: each of these may hold several words.
    # shellcheck disable=SC2086
    $compiler ${CFLAGS:-} -I"$include" "$probe/probe.c" -o "$probe/probe" ${LDFLAGS:-} ${2:+-l$2} \
        >/dev/null 2>&1 && found=0 || found=1
    rm -rf "$probe"
    return "$found"
}

missing=  # what, in words
debian=   # the Debian packages that bring it
miss() {
    missing="$missing${missing:+, }$1"
    debian="$debian${debian:+ }$2"
}

look() {
    missing=
    debian=
    if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import fastecdsa' 2>/dev/null; then
        compiles stdlib.h || miss "a C compiler" "gcc libc6-dev"
        compiles gmp.h gmp || miss "GMP's headers" "libgmp-dev"
        [ -e "$include/Python.h" ] || miss "Python.h" "python$version-dev"
    fi
    have uv || "$python" -c 'import ensurepip, venv' 2>/dev/null || miss "Python's venv" "python$version-venv"
}

look
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && have apt-get; then
    echo "setup: installing $debian"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $debian >/dev/null
    look
fi
[ -z "$missing" ] || fail "missing: $missing. Install with
  Debian, Ubuntu:  sudo apt-get install $debian
  Fedora:          sudo dnf install gcc gmp-devel python3-devel
  macOS:           xcode-select --install; brew install gmp
then run it again."

# --- the environment ----------------------------------------------------------

usable() {
    fits .venv/bin/python && { have uv || .venv/bin/python -m pip --version >/dev/null 2>&1; }
}

rm -f "$stamp"
if ! usable; then
    echo "setup: making .venv with Python $version"
    rm -rf .venv
    if have uv; then uv venv --quiet --python "$python" .venv; else "$python" -m venv .venv; fi
fi

install() {
    if have uv; then
        uv pip install --quiet --python .venv/bin/python --no-build-isolation "$@"
    else
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            --no-build-isolation --use-pep517 "$@"
    fi
}

echo "setup: installing the packages of requirements.lock"
# Nothing is built with unlocked tools: setuptools comes first, from the same
# lock, and builds the few packages that have no wheel.
first=.venv/setuptools.lock
awk '/^[a-z]/ { wanted = /^setuptools==/ } wanted' requirements.lock >"$first"
install --require-hashes -r "$first"
install --require-hashes -r requirements.lock
install --no-deps --editable .
# libp2p brings trio-typing, whose stubs of an old trio hide the types that trio ships itself.
rm -rf .venv/lib/python*/site-packages/trio-stubs
printf '%s\n' "$key" >"$stamp"
echo "setup: done"
