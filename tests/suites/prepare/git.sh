# git with its own tests, each a script of many short programs.
source git /mnt/tree
cd /mnt/tree
step "building git (some minutes)" make -s -j2 NO_GETTEXT=1 NO_TCLTK=1 NO_EXPAT=1 NO_CURL=1 NO_PYTHON=1 \
    INSTALL_SYMLINKS=1 CFLAGS=-O1 all
find . -name '*.o' -delete
(cd t && ls t[0-9][0-9][0-9][0-9]-*.sh) >/mnt/units
