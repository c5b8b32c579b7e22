/* Messages that service.c and its clients exchange. */
#include <stdint.h>

/* A question, or the answer to the question with that tag. */
struct message {
    uint64_t tag;
    uint64_t number;
};

/* The service's answer to `number`: any function would do. */
static inline uint64_t answer_of(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}
