/* Source for the compiler to read from the slow disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	printf("%d\n", abs(-3) + (int)strlen("four"));
	return 0;
}
