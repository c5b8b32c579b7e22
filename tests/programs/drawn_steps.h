/* Shared parts of programs whose steps a seed decides, and that print one number for all they saw.
 */
#include "program_helpers.h"

static uint64_t state, seen;

static uint64_t next(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 8) % below;
}

static void see(uint64_t what)
{
	seen = (seen ^ what) * 0x9e3779b97f4a7c15ull;
	seen ^= seen >> 29;
}
