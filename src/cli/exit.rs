//! Exit codes, and what is said on the way out.

use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use leasehold::{AcquireError, ConnectError};

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    pub(crate) const SUCCESS: Code = Code(0);
    /// Anything that has no code of its own.
    pub(crate) const FAILURE: Code = Code(1);
    /// As clap has it.
    pub(crate) const USAGE: Code = Code(2);
    /// `EX_UNAVAILABLE` of sysexits.h.
    pub(crate) const TOO_FEW_NODES: Code = Code(69);
    /// `EX_TEMPFAIL` of sysexits.h.
    pub(crate) const HELD: Code = Code(75);
    /// A code that sysexits.h leaves to protocols (`EX_PROTOCOL`).
    pub(crate) const LOST: Code = Code(76);
    /// As shells have it.
    pub(crate) const NOT_EXECUTABLE: Code = Code(126);
    /// As shells have it.
    pub(crate) const NOT_FOUND: Code = Code(127);

    /// What a command that ended by itself returned.
    pub(crate) fn of_command(status: i32) -> Code {
        Code(u8::try_from(status).unwrap_or(Code::FAILURE.0))
    }

    /// 128 + n, as shells have it.
    pub(crate) fn of_signal(signal: i32) -> Code {
        Code(u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code.0)
    }
}

/// Why a command could not do its work: a line for people and a code for programs.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }

    /// The operating system refused something.
    pub(crate) fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::new(Code::FAILURE, format!("cannot {what}: {error}"))
    }

    /// Says the line; returns the code.
    pub(crate) fn report(self) -> Code {
        say(&self.message);
        self.code
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let code = match &error {
            AcquireError::InvalidRequest(_) => Code::USAGE,
            AcquireError::TimedOut { .. } => Code::HELD,
            AcquireError::NoQuorum(_) => Code::TOO_FEW_NODES,
            _ => Code::FAILURE,
        };
        Self::new(code, error.to_string())
    }
}

/// One line on standard error.
pub(crate) fn say(message: &str) {
    write_error(&format!("leasehold: {}\n", message.replace('\n', " ")));
}

/// Writes to standard output what a command was run for. A reader that went away has seen enough; a full disk
/// has not.
pub(crate) fn deliver(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::system("write the result", error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The same for what is told on the way.
pub(crate) fn print(text: &str) {
    let _ = deliver(text);
}

/// Writes to standard error; one that is closed is no reason to fail.
pub(crate) fn write_error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// `text` with `***` for what may be user and password of an address: all between `://` and the last `@`
/// before the next address or the end of the line.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut parts = text.split("://");
    shown.push_str(parts.next().unwrap_or_default());
    for part in parts {
        shown.push_str("://");
        let line = part.find('\n').unwrap_or(part.len());
        match part[..line].rfind('@') {
            Some(at) => {
                shown.push_str("***");
                shown.push_str(&part[at..]);
            }
            None => shown.push_str(part),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_secrets("unexpected 'redis://u:secret@h:1,redis://:se cr@et@h:2' found\n a@b");
        assert_eq!(shown, "unexpected 'redis://***@h:1,redis://***@h:2' found\n a@b");
        for plain in ["", "no address", "redis://h:1,redis://h:2", "mail@example", "a://\n@"] {
            assert_eq!(without_secrets(plain), plain);
        }
    }

    #[test]
    fn codes_stay_within_a_byte() {
        assert_eq!(Code::of_command(42), Code(42));
        assert_eq!(Code::of_signal(15), Code(143));
        assert_eq!(Code::of_signal(i32::MAX), Code(255));
        assert_eq!(Code::of_command(-1), Code::FAILURE);
    }
}
