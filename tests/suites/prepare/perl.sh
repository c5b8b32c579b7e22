# Perl, with threads, as its own tests want it: not installed, beside its library.
source perl /mnt/tree
cd /mnt/tree
step "configuring Perl" sh ./Configure -des -Dusethreads -Duselargefiles -Dprefix=/mnt/perl \
    -Dman1dir=none -Dman3dir=none
step "building Perl (some minutes)" make -s -j2 test_prep
find . -name '*.o' -delete
cd t
find base cmd comp run io opbasic op re uni mro class lib -name '*.t' 2>/dev/null | sort >/mnt/units
