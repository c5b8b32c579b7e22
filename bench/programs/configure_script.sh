# A small script like those of autoconf: looks at the system, compiles little
# programs, looks at their results, and fills in templates. Writes into the directory where it runs.
#
#   dash configure UNIX    UNIX/bin has the programs and UNIX/lib their libraries
set -u
unix=$1
PATH=$unix/bin
LD_LIBRARY_PATH=$unix/lib
export PATH LD_LIBRARY_PATH
failed=0

checking() { printf 'checking %s... ' "$*"; }
result() { printf '%s\n' "$*"; }

# Which programs are there, and do they work?
checking for the directory of this script
me=$(basename "$0")
dir=$(cd "$(dirname "$0")" && pwd)
result "$(expr "x$dir/$me" : 'x.*/\([^/]*/[^/]*\)')"
checking whether the file system knows times
touch conftest.old && cp conftest.old conftest.new
result "$(ls -t conftest.old conftest.new | wc -l | tr -d ' ')"
rm -f conftest.old conftest.new
checking for a thread-safe mkdir -p
mkdir -p conftest.dir/a/b && rmdir conftest.dir/a/b && rmdir conftest.dir/a conftest.dir && result yes
checking for a grep that handles long lines
seq 1 400 | paste -s -d ' ' >conftest.in
for turn in 1 2 3 4; do
    cat conftest.in conftest.in >conftest.tmp && mv conftest.tmp conftest.in
done
result "$(grep -c 400 conftest.in) $(wc -c <conftest.in)"
checking for a sed that does not truncate output
result "$(sed 's/ /,/g;s/399/x/' conftest.in | head -n 1 | cut -c 1-40)"
checking for awk
result "$(awk 'NF > n { n = NF } END { print n }' conftest.in)"
checking how to fold, number, join and split
fold -w 30 conftest.in | head -n 3 | nl >conftest.1
seq 1 5 >conftest.2
seq 3 8 >conftest.3
join conftest.2 conftest.3 >conftest.4
split -l 2 conftest.4 conftest.part.
result "$(cat conftest.part.* | comm -12 - conftest.2 | wc -l)"
checking for checksums
result "$(md5sum <conftest.1 | cut -c 1-8) $(sha256sum <conftest.1 | cut -c 1-8) $(cksum <conftest.1 | cut -d ' ' -f 1)"
checking the build system type
result "$(uname -m)-$(uname -s | tr '[:upper:]' '[:lower:]')"
checking whether the number of processors can be told
test "$(nproc)" -ge 1 && result yes
checking for a user
test "$(id -u)" -ge 0 && result yes
checking for the current date
test "$(date +%Y)" -ge 2000 && result yes
checking for links
echo text >conftest.file
ln -s conftest.file conftest.sym && ln conftest.file conftest.hard
result "$(readlink conftest.sym) $(basename "$(realpath conftest.sym)") $(stat -c %h conftest.file)"
checking for a BSD-compatible install
install -m 640 conftest.file conftest.inst && chmod 600 conftest.inst
result "$(stat -c %a conftest.inst)"
checking for temporary names
name=$(mktemp conftest.XXXXXX) && test -f "$name" && result yes
rm -f "$name"
checking for dd, od and tee
result "$(dd if=conftest.file bs=2 count=1 2>conftest.err | od -An -tx1 | tee conftest.od | tr -d ' ')"
checking for the environment
result "$(env A=b printenv A)"
checking sizes
result "$(du -k conftest.file | cut -f 2) $(tail -n 1 conftest.file)"
rm -f conftest.*

# The compiler: each is three programs.
try() {
    cc -O1 -c conftest.c -o conftest.o 2>conftest.err
}
for header in stdio.h stdlib.h string.h unistd.h sys/stat.h sys/mman.h fcntl.h pthread.h \
    no-such-header.h; do
    checking "for $header"
    cat >conftest.c <<_EOF
#include <$header>
int main(void) { return 0; }
_EOF
    if try; then result yes; else result no; fi
    name=HAVE_$(echo "$header" | sed 'y/abcdefghijklmnopqrstuvwxyz/ABCDEFGHIJKLMNOPQRSTUVWXYZ/;s/[^A-Z]/_/g')
    test -f conftest.o && echo "#define $name 1" >>confdefs.h
    rm -f conftest.*
done
for type in int long 'void *' off_t; do
    checking "size of $type"
    cat >conftest.c <<_EOF
#include <sys/types.h>
char size_of_it[sizeof($type)];
_EOF
    try || failed=1
    size=$(nm -S conftest.o | grep size_of_it | awk '{ print $2 }' | sed 's/^0*//')
    result "$size"
    name=SIZEOF_$(echo "$type" | tr 'a-z *' 'A-Z_P')
    echo "#define $name $size" >>confdefs.h
    rm -f conftest.*
done
checking for libraries and object files
cat >conftest.c <<_EOF
const char mark[] = "mark of this test";
int two(int x) { return x + x; }
_EOF
try || failed=1
ar cr conftest.a conftest.o && ranlib conftest.a
ld -r -o conftest.ro conftest.o && cp conftest.ro conftest.s && strip -g conftest.s
result "$(strings conftest.a | grep -c 'mark of') $(nm conftest.ro | wc -l) $(size conftest.o | wc -l)"
checking for the object format
result "$(objdump -f conftest.o | grep -o 'elf64[^ ]*') $(readelf -h conftest.o | grep -c ELF)"
checking whether two compilations are the same
cp conftest.o conftest.o2
try
cmp conftest.o conftest.o2 && result yes
rm -f conftest.*

# Templates.
n=0
while [ "$n" -lt 12 ]; do
    n=$(expr "$n" + 1)
    mkdir -p "sub$n"
    cat >"sub$n/Makefile.in" <<_EOF
prefix = @prefix@
CC = @CC@
objects = a.o b.o part@number@.o
_EOF
    sed "s,@prefix@,/usr/local,;s,@CC@,cc,;s,@number@,$n," "sub$n/Makefile.in" >"sub$n/Makefile.new"
    if cmp -s "sub$n/Makefile.new" "sub$n/Makefile"; then rm -f "sub$n/Makefile.new"; else
        mv "sub$n/Makefile.new" "sub$n/Makefile"
    fi
done
sort -u confdefs.h | uniq -c | awk '{ $1 = ""; print substr($0, 2) }' >config.h
diff confdefs.h config.h >conftest.diff
find . -name Makefile | sort | xargs grep -h part | sed 's/.* //'
cat config.h
exit "$failed"
