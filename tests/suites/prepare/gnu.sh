# A GNU project (grep, sed, coreutils): built, with the programs that its tests need.
source "$SUITE" /mnt/tree
cd /mnt/tree
# Root has to say that it knows what it does.
export FORCE_UNSAFE_CONFIGURE=1
step "configuring $SUITE" ./configure --disable-nls --quiet
step "building $SUITE" make -s -j2
# Everything that tests need is made before the first of them, also if there is none.
step "building what the tests of $SUITE need" make -s -j2 check TESTS=
rm -f po/*.po po/*.gmo
dir=.
[ "$SUITE" = grep ] && dir=tests
make -s -C "$dir" --eval='list-of-tests:;@printf "%s\n" $(TESTS)' list-of-tests >/mnt/units
