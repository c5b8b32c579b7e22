//! Client of a slow service that does not wait for answers: it predicts each one and continues.
//!
//! ```text
//! client SOCKET CALLS MICROSECONDS PERCENT
//! ```
//!
//! Asks service.c CALLS questions, one after another, each of which depends on the answer before,
//! and computes for MICROSECONDS after each. PERCENT of its predictions are right. Prints every
//! hundredth answer, and at the end the last.
//!
//! Under `runahead run --speculate` the client need not wait for the service. Without runahead,
//! or where it cannot speculate, it waits for each answer. It prints the same either way.
//! client.c and client.py do the same in C and Python.
//!
//! There are two processes: the client, and a receiver. The receiver is a child that gets the
//! answers, knows the predictions, and settles each. It has to be another process, because a
//! process that is rolled back forgets what it has received.

use std::fmt::Display;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use std::{env, hint, io, process};

use runahead_client::prediction as speculate;
use runahead_client::prediction::{Begun, Id, Policy};

/// Bit of a tag that is not the number of a speculation: a question whose answer is waited for.
const WAITS: u64 = 1 << 63;

/// A question, or the answer to the question with that tag: two words, as in service.h.
#[derive(Clone, Copy)]
struct Message {
    tag: u64,
    number: u64,
}

impl Message {
    /// Returns the next message; None if the other end has closed.
    fn get(mut from: impl Read) -> Option<Self> {
        let mut words = [[0; 8]; 2];
        from.read_exact(words.as_flattened_mut()).ok()?;
        let [tag, number] = words.map(u64::from_ne_bytes);
        Some(Message { tag, number })
    }

    fn put(self, mut to: impl Write) {
        let words = [self.tag, self.number].map(u64::to_ne_bytes);
        to.write_all(words.as_flattened()).unwrap_or_else(|_| die_alone());
    }
}

/// Answer of the service, as in service.h.
fn answer_of(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn die(what: impl Display) -> ! {
    eprintln!("{what}");
    process::exit(1)
}

fn die_alone() -> ! {
    die("the service has gone")
}

/// Text of perror(3), which leaves out the number.
fn words_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Body of the receiver: settles predictions, and passes on other answers.
fn receive(service: &UnixStream, predictions: &PipeReader, answers: &PipeWriter) {
    let mut prediction = Message { tag: 0, number: 0 };
    while let Some(answer) = Message::get(service) {
        if answer.tag & WAITS != 0 {
            answer.put(answers);
            continue;
        }
        // Predictions come in the order of questions. If one has no question, the client was rolled
        // back in between.
        while prediction.tag != answer.tag {
            let Some(next) = Message::get(predictions) else { return };
            prediction = next;
        }
        // An error means that the client has been rolled back since.
        let _ = match prediction.number == answer.number {
            true => speculate::commit(Id(answer.tag)),
            false => speculate::fail(Id(answer.tag), &answer.number.to_ne_bytes()),
        };
    }
}

struct Client {
    service: UnixStream,
    predictions: PipeWriter,
    answers: PipeReader,
    receiver: u32,
    since: Instant,
}

impl Client {
    /// Asks, and waits for the answer.
    fn ask(&self, number: u64) -> u64 {
        // A counter would be rolled back with the process; time is not.
        let tag = WAITS | self.since.elapsed().as_nanos() as u64;
        Message { tag, number }.put(&self.service);
        loop {
            // Answers to questions that were rolled back come first.
            let answer = Message::get(&self.answers).unwrap_or_else(|| die_alone());
            if answer.tag == tag {
                return answer.number;
            }
        }
    }

    /// Returns the answer to a number, or its prediction.
    fn ask_ahead(&self, number: u64, prediction: u64) -> u64 {
        match speculate::begin(self.receiver) {
            Begun::Speculative(Id(tag)) => {
                Message { tag, number: prediction }.put(&self.predictions);
                Message { tag, number }.put(&self.service);
                prediction
            }
            Begun::Failed(id) => {
                let mut right = [0; 8];
                match speculate::answer(id, &mut right) {
                    Ok(8) => u64::from_ne_bytes(right),
                    // It failed without an answer.
                    _ => self.ask(number),
                }
            }
            Begun::Refused(_) => self.ask(number),
        }
    }
}

/// Predicts the answer, right in PERCENT of calls.
fn predict(number: u64, call: u64, percent: u64) -> u64 {
    answer_of(number).wrapping_add(u64::from(answer_of(call) % 100 >= percent))
}

/// Work between two questions.
fn compute(mut number: u64, time: Duration) {
    let from = Instant::now();
    while {
        for n in 0..1000 {
            number ^= answer_of(number.wrapping_add(n));
        }
        from.elapsed() < time
    } {}
    hint::black_box(number);
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let ([socket, _, _, _], &[calls, microseconds, percent]) = (&args[..], &numbers[..]) else {
        eprintln!("usage: client SOCKET CALLS MICROSECONDS PERCENT");
        process::exit(2)
    };
    let service = UnixStream::connect(socket);
    let service = service.unwrap_or_else(|e| die(format!("{socket}: {}", words_of(&e))));
    let pipe = || io::pipe().unwrap_or_else(|e| die(format!("pipe: {}", words_of(&e))));
    let (predicted, predictions) = pipe();
    let (answers, answered) = pipe();
    let since = Instant::now();
    // SAFETY: this process has one thread, so its copy may do all that it could.
    let receiver = match unsafe { libc::fork() } {
        -1 => die(format!("fork: {}", words_of(&io::Error::last_os_error()))),
        0 => {
            drop((predictions, answers));
            receive(&service, &predicted, &answered);
            return;
        }
        child => child,
    };
    // The other ends are the receiver's alone, so that they close when it ends.
    drop((predicted, answered));
    // Questions do no harm, and the receiver ignores predictions without a question. All other
    // output of the client is held until it is certain. An error means that no runahead listens.
    let _ = speculate::set_policy(service.as_raw_fd(), Policy::Allow);
    let _ = speculate::set_policy(predictions.as_raw_fd(), Policy::Allow);
    let client = Client { service, predictions, answers, receiver: receiver as u32, since };
    let mut number = 1;
    for call in 0..calls {
        number = client.ask_ahead(number, predict(number, call, percent));
        compute(number, Duration::from_micros(microseconds));
        if call % 100 == 99 {
            println!("{}: {number:016x}", call + 1);
        }
    }
    println!("last: {number:016x}");
    speculate::barrier();
    // It is no error if the service has ended by now.
    let _ = client.service.shutdown(std::net::Shutdown::Both);
    drop(client);
    // SAFETY: waits for our child; nothing is written.
    unsafe { libc::waitpid(receiver, std::ptr::null_mut(), 0) };
}
