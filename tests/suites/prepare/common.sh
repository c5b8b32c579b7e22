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

# Versions of a package that the archive's lists name, the newest first; of binary packages if $2 is
# Packages, of source packages if it is Sources.
versions() {
    apt-cache madison "$1" | awk -F ' *[|] *' -v kind="$2" '$3 ~ kind "$" { print $2 }' | sort -Vru
}

# Downloads packages ($3 and on), all of one version, with the words $2 of apt-get; $1 as above. Lists
# may name a version that is not in the pool: while a mirror is brought up to date, or between the
# time that it is asked for the one and for the other. An older one does as well, and there mostly
# is one: security updates have a list of their own.
fetch() {
    kind=$1 how=$2
    shift 2
    say "downloading $*"
    for version in $(versions "$1" "$kind"); do
        rm -rf /mnt/download
        mkdir -p /mnt/download
        # $how is several words, and so are the packages with their version.
        # shellcheck disable=SC2046,SC2086
        (cd /mnt/download && apt-get -qq $how $(printf "%s=$version " "$@")) && return
        say "version $version of $1 is not to be had"
    done
    fail "no version of $1 that Debian's lists name can be downloaded: see above, or try again later"
}

# Unpacks these binary packages into a directory, without installing them.
packages() {
    into=$1
    shift
    debian
    fetch Packages download "$@"
    for deb in /mnt/download/*.deb; do dpkg-deb -x "$deb" "$into"; done
}

# Unpacks the upstream release that Debian's source package is made from. Debian's patches are left
# out: they are younger than the generated files, which would have to be generated anew.
source() {
    debian
    fetch Sources "source --download-only --only-source" "$1"
    mkdir -p "$2"
    archive=$(find /mnt/download -name "$1_*.orig.tar.*" ! -name '*.asc')
    tar -xf "$archive" --strip-components=1 -C "$2"
    basename "$archive" | sed 's/\.orig.*//; s/_/ /' >/mnt/version
}

# Unpacks what no registry has into $3: project $1, of which the archive in $RUNAHEAD_SUITES_DIR may be of
# any commit, or else commit $2 from its public repository $4. Where neither is to be had, the suite is
# skipped.
published() {
    set -- "$1" "$2" "$3" "$4" "${RUNAHEAD_SUITES_DIR:-/nonexistent}"/"$1"-*.tar.xz
    mkdir -p "$3"
    if [ -e "$5" ]; then
        tar -xf "$5" --strip-components=1 -C "$3"
        basename "$5" .tar.xz | sed 's/-\([^-]*\)$/ \1/' >/mnt/version
        return
    fi
    say "fetching $4"
    git -C "$3" init -q
    timeout 300 git -C "$3" fetch -q --depth 1 "$4" "$2" || {
        say "$1 is neither in RUNAHEAD_SUITES_DIR (${RUNAHEAD_SUITES_DIR:-not set}) nor at $4: skipped"
        exit 77
    }
    git -C "$3" checkout -q FETCH_HEAD
    rm -rf "$3/.git"
    echo "$1 $2" >/mnt/version
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

# Puts the library of waits.c, and what it reads, into the tree.
waits() {
    echo "$WAITS" >/mnt/waits.c
    step "compiling what forces waits" cc -O2 -shared -fPIC -o /mnt/tree/waits.so /mnt/waits.c
    head -c 67108864 /dev/zero >/mnt/tree/cold
}

mkdir -p /mnt/download
