# Shared by the scripts beside: each is run with this text before it, as root, in a mount namespace
# of its own where the suite's new directory in the cache is /mnt. What is built here therefore
# finds itself at the same path again when the directory's copy on a slow disk is /mnt.
#
# A script leaves /mnt/tree (what is put on the slow disk), /mnt/units (one a line) and /mnt/version.
set -eu
umask 022
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

say() { echo "suites: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# Debian's archive, sources included, with lists and downloads of our own: the machine's
# configuration is neither used nor changed.
debian() {
    [ -z "${APT_CONFIG:-}" ] || return 0
    grep -q '^ID=debian$' /etc/os-release || fail "suites come from Debian's archive: this is no Debian"
    apt=$SUITES_CACHE/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/parts"
    # From where the system has its packages, and their sources.
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' >"$apt/parts/system.list"
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
        sed 's/^Types:.*/Types: deb deb-src/' >"$apt/parts/system.sources"
    cat >"$apt/apt.conf" <<END
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/parts";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::status "/dev/null";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt";
APT::Sandbox::User "root";
Acquire::Languages "none";
END
    export APT_CONFIG="$apt/apt.conf"
    say "asking Debian's archive"
    # Two suites prepared at once wait for each other.
    flock "$apt/lists" apt-get -qq update
}

# Unpacks these binary packages into a directory, without installing them.
packages() {
    into=$1
    shift
    debian
    say "downloading $*"
    (cd /mnt/download && apt-get -qq download "$@")
    for deb in /mnt/download/*.deb; do dpkg-deb -x "$deb" "$into"; done
}

# Unpacks the upstream release that Debian's source package is made from. Debian's patches are left
# out: they are younger than the generated files, which would have to be generated anew.
source() {
    debian
    say "downloading the source of $1"
    (cd /mnt/download && apt-get -qq source --download-only --only-source "$1")
    mkdir -p "$2"
    tar -xf /mnt/download/"$1"_*.orig.tar.?z --strip-components=1 -C "$2"
    basename /mnt/download/"$1"_*.orig.tar.?z | sed 's/\.orig.*//; s/_/ /' >/mnt/version
}

# Runs a long step of a build, its output in a file that is shown if it fails.
step() {
    say "$1"
    shift
    "$@" >/mnt/build.log 2>&1 || {
        tail -30 /mnt/build.log >&2
        fail "this failed: $*"
    }
}

mkdir -p /mnt/download
