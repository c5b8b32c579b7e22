//! The control socket: one JSON line asks, one JSON line answers.
//!
//! Invariant: a request is answered even while every FUSE request is delayed; the socket shares
//! nothing with them but the pacer's lock, which is never held for longer than a bookkeeping step.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::deferred_replies::Pacer;
use crate::{Error, Stats};

/// Request to a server.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ControlRequest {
    Stats,
    Reset,
    Delay(bool),
    MakeCold,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Stats(Stats),
    Failed(i32),
}

/// Answers for ever. A connection that breaks is the asker's loss.
pub(super) fn serve(
    listener: &UnixListener,
    pacer: &Pacer,
    make_cold: impl Fn() -> io::Result<()>,
) -> ! {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let _ = answer(&stream, pacer, &make_cold);
            }
            // Out of descriptors or memory, which may pass.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(
    stream: &UnixStream,
    pacer: &Pacer,
    make_cold: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let answer = match serde_json::from_str(&line(stream)?)? {
        ControlRequest::Stats => Answer::Stats(pacer.stats()),
        ControlRequest::Reset => {
            pacer.reset_stats();
            Answer::Done
        }
        ControlRequest::Delay(on) => {
            pacer.set_delay(on);
            Answer::Done
        }
        ControlRequest::MakeCold => match make_cold() {
            Ok(()) => Answer::Done,
            Err(e) => Answer::Failed(e.raw_os_error().unwrap_or(libc::EIO)),
        },
    };
    send(stream, &answer)
}

/// Asks the server behind `socket`, which serves `dir`.
pub(crate) fn ask(dir: &Path, socket: &Path, ask: ControlRequest) -> Result<Answer, Error> {
    let exchange = || -> io::Result<String> {
        let stream = UnixStream::connect(socket)?;
        // Making a share cold waits for requests in flight; anything else is immediate.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        send(&stream, &ask)?;
        let answer = line(&stream)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer)
    };
    let answer = exchange().map_err(|source| Error::ServerGone { dir: dir.to_owned(), source })?;
    serde_json::from_str(&answer)
        .map_err(|source| Error::Format { path: socket.to_owned(), source })
}

fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(message)?;
    text.push(b'\n');
    stream.write_all(&text)
}

fn line(stream: &UnixStream) -> io::Result<String> {
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text)?;
    Ok(text)
}
