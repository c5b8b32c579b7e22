/* What service.c and its clients have in common. */
#include <stdint.h>

/* A question, or an answer to the question with that tag. */
struct message {
    uint64_t tag;
    uint64_t number;
};

/* Any function will do. */
static inline uint64_t answer_of(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}
