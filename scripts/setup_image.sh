#!/usr/bin/env bash
# Set up what the tests of the image build it from, where no container runs: a minimal Debian with its
# own Python, in place of the image that deploy/docker/Dockerfile begins with, and the packages that the
# daemon is locked to. Both are kept in build/image: a minute or some to fetch the first time, 300 MB.
# The tests themselves need no network.
#
# In CI whatever is missing is a failure. Elsewhere one line says what is missing, and these tests skip
# with that reason.
set -euo pipefail
source "$(dirname "$0")/common.sh"

folder=build/image
locked=requirements/run.txt

give_up() {
    in_ci && die "$*"
    say "$*; until then the tests that build the image are skipped"
    exit 0
}

# "3.11-slim-bookworm" is Debian's release and the Python that it brings.
base="$(sed -n 's/^ARG PYTHON=//p' deploy/docker/Dockerfile)"
python="${base%%-*}"
release="${base##*-}"

mkdir -p "$folder"
if ! [[ -f "$folder/$base.tar" ]]; then
    [[ "$(id -u)" == 0 ]] || give_up "only root can unpack a Debian"
    command -v debootstrap >/dev/null || apt_install debootstrap ||
        give_up "no debootstrap found (Debian and Ubuntu: apt install debootstrap)"
    say "fetching a minimal Debian $release (one to three minutes the first time)"
    root="$(mktemp -d)"
    chmod 0755 "$root"   # it is the root of all users there
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase --include=python3,python3-venv,python-is-python3 \
        "$release" "$root" >"$folder/debootstrap.log" 2>&1 ||
        give_up "debootstrap failed; $folder/debootstrap.log says why"
    [[ -x "$root/usr/bin/python$python" ]] || die "Debian $release has no Python $python"
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists -cf "$folder/new.tar" .
    mv "$folder/new.tar" "$folder/$base.tar"
fi

stamp="$folder/.wheels"        # the fingerprint of the requirements that lie there
fingerprint="$(fingerprint "$locked" <(printf '%s' "$python"))"
if ! [[ -f "$stamp" && "$(<"$stamp")" == "$fingerprint" ]]; then
    say "fetching $locked for Python $python"
    rm -rf "$folder/wheels"
    .venv/bin/python -m pip --disable-pip-version-check download --quiet --require-hashes --no-deps \
        --only-binary :all: --python-version "$python" --requirement "$locked" --dest "$folder/wheels" ||
        give_up "the packages could not be fetched; see the lines above"
    printf '%s\n' "$fingerprint" >"$stamp"
fi
