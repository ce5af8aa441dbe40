//! Asking a port whether the server there answers, and whether it is ours.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One question and its answer on the loopback take microseconds; a loaded machine gets a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the process `pid` answers at `address`. False while nobody answers, while the server
/// still loads its data, and when the answer comes from some other process.
pub(super) async fn answers(address: SocketAddr, pid: u32, password: Option<&str>) -> bool {
    let asked = tokio::time::timeout(PATIENCE, ask(address, password)).await;
    matches!(asked, Ok(Ok(answer)) if answer.is_from(pid))
}

/// What a server said of itself.
enum Answer {
    NotYet,
    /// It answers, and its INFO says which process it is.
    Process(u32),
    /// It answers, but its INFO is not for us: a password or a renamed command.
    Nameless,
}

impl Answer {
    fn is_from(&self, pid: u32) -> bool {
        match self {
            Answer::NotYet => false,
            Answer::Process(other) => *other == pid,
            // The caller has seen its child alive, and a child that finds its port taken ends.
            Answer::Nameless => true,
        }
    }
}

async fn ask(address: SocketAddr, password: Option<&str>) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    if let Some(password) = password {
        question(&mut stream, &["AUTH", password]).await?;
    }
    let pong = question(&mut stream, &["PING"]).await?;
    if pong.starts_with("-LOADING") || pong.starts_with("-DENIED") {
        return Ok(Answer::NotYet);
    }
    let info = question(&mut stream, &["INFO", "server"]).await?;
    Ok(match process_id(&info) {
        Some(pid) => Answer::Process(pid),
        None => Answer::Nameless,
    })
}

fn process_id(info: &str) -> Option<u32> {
    let value = info.lines().find_map(|line| line.strip_prefix("process_id:"))?;
    value.trim().parse().ok()
}

/// Sends one command and reads one reply: a line, or a bulk string.
async fn question(stream: &mut TcpStream, words: &[&str]) -> io::Result<String> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(command.as_bytes()).await?;
    let mut reply = Vec::new();
    while !is_whole(&reply) {
        if stream.read_buf(&mut reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

fn is_whole(reply: &[u8]) -> bool {
    let Some(end) = reply.windows(2).position(|pair| pair == b"\r\n") else {
        return false;
    };
    match reply.strip_prefix(b"$") {
        None => true,
        Some(_) => {
            let length = std::str::from_utf8(&reply[1..end]).ok().and_then(|text| text.parse().ok());
            // `$-1` is a missing value and has no body.
            length.is_none_or(|length: usize| reply.len() >= end + 2 + length + 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_whole_at_its_end_and_a_bulk_string_at_the_end_of_its_body() {
        assert!(!is_whole(b""));
        assert!(!is_whole(b"+PON"));
        assert!(is_whole(b"+PONG\r\n"));
        assert!(is_whole(b"-NOAUTH Authentication required.\r\n"));
        assert!(!is_whole(b"$3\r\nabc"));
        assert!(!is_whole(b"$3\r\nabc\r"));
        assert!(is_whole(b"$3\r\nabc\r\n"));
        assert!(is_whole(b"$-1\r\n"));
    }

    #[test]
    fn the_process_is_read_from_info() {
        assert_eq!(process_id("$9\r\n# Server\r\nprocess_id:42\r\ntcp_port:1\r\n"), Some(42));
        assert_eq!(process_id("-NOAUTH Authentication required.\r\n"), None);
    }
}
