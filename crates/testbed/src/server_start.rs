//! Starting the server process; see [`crate::server`] for how it takes over.
//!
//! Invariant: the starter keeps no copy of the FUSE connection, so that the connection dies with
//! the server.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::mounts::last_line;
use crate::server::{Config, ENVIRONMENT, SERVE_IF_ASKED, StartReport};
use crate::{Error, Step};

/// A server that was started and has not said yet whether it is ready.
pub(crate) struct StartingServer {
    pub(crate) child: Child,
    log: PathBuf,
}

impl StartingServer {
    /// Starts a server: the running program again, or `exe`, which must link this library.
    pub(crate) fn spawn(
        config: &Config,
        connection: OwnedFd,
        log: &Path,
        exe: Option<&Path>,
    ) -> Result<Self, Error> {
        // Without a mention the linker may leave the constructor's object file out.
        std::hint::black_box(&SERVE_IF_ASKED);
        // The link and not its target, which a compiler may have replaced since this program
        // started.
        let exe = exe.unwrap_or(Path::new("/proc/self/exe"));
        let failed = |e| Error::system(Step::StartServer, exe)(e);
        let config = serde_json::to_string(config).map_err(|e| failed(e.into()))?;
        let output = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        let child = Command::new(exe)
            .arg0("runahead-testbed")
            .env(ENVIRONMENT, config)
            .stdin(Stdio::from(connection))
            .stdout(Stdio::piped())
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Waits until the server is ready or has failed.
    pub(crate) fn wait(mut self, dir: &Path) -> Result<Child, Error> {
        let mut line = String::new();
        if let Some(pipe) = self.child.stdout.take() {
            BufReader::new(pipe)
                .read_line(&mut line)
                .map_err(Error::system(Step::StartServer, dir))?;
        }
        let hello = serde_json::from_str(&line);
        if matches!(hello, Ok(StartReport::Ready)) {
            return Ok(self.child);
        }
        let status = self.child.wait().map_err(Error::system(Step::StartServer, dir))?;
        Err(match hello {
            Ok(StartReport::Failed { step, path, errno }) => {
                Error::system(step, path)(std::io::Error::from_raw_os_error(errno))
            }
            _ => Error::Helper {
                program: "the server",
                status,
                path: dir.to_owned(),
                message: last_line(&std::fs::read(self.log).unwrap_or_default()),
            },
        })
    }
}
