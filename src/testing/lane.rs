//! One direction of one connection through a [`FaultProxy`](super::FaultProxy).
//!
//! One half reads at once whatever comes and notes when; the other delivers it when it is due. So a
//! latency delays each piece by itself and slows no sender down.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::proxy::{Direction, Faults};

/// What happens to bytes that go one way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    pub(super) latency: Duration,
    pub(super) fate: Fate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    #[default]
    Deliver,
    Hold,
    Lose,
}

/// What was read, and when.
struct Arrival {
    at: Instant,
    what: Piece,
}

enum Piece {
    Bytes(Vec<u8>),
    /// From here on the stream has a hole.
    Hole,
    End,
}

/// Carries bytes from one socket to the other until the sender's end, which is carried too. A
/// receiver that has gone hears nothing more, but the sender is read to its end.
pub(super) async fn carry(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    direction: Direction,
    faults: watch::Receiver<Faults>,
) {
    let (arrivals, due) = mpsc::unbounded_channel();
    let reading = read(from, direction, faults.clone(), arrivals);
    tokio::join!(reading, deliver(to, direction, faults, due));
}

async fn read(
    mut from: impl AsyncRead + Unpin,
    direction: Direction,
    faults: watch::Receiver<Faults>,
    arrivals: mpsc::UnboundedSender<Arrival>,
) {
    loop {
        let mut bytes = Vec::with_capacity(4096);
        // A broken connection ends like a closed one: what came before is still carried.
        let count = from.read_buf(&mut bytes).await.unwrap_or(0);
        let what = match count {
            0 => Piece::End,
            _ if faults.borrow().lane(direction).fate == Fate::Lose => Piece::Hole,
            _ => Piece::Bytes(bytes),
        };
        // Refused only when the handle is gone, and this future with it in a moment.
        let _ = arrivals.send(Arrival { at: Instant::now(), what });
        if count == 0 {
            return;
        }
    }
}

async fn deliver(
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    mut faults: watch::Receiver<Faults>,
    mut due: mpsc::UnboundedReceiver<Arrival>,
) {
    let mut has_hole = false;
    while let Some(arrival) = due.recv().await {
        let Some(fate) = wait_until_due(arrival.at, direction, &mut faults).await else {
            return;
        };
        match arrival.what {
            Piece::Hole => has_hole = true,
            Piece::Bytes(_) if fate == Fate::Lose => has_hole = true,
            Piece::Bytes(_) if has_hole => {}
            Piece::Bytes(bytes) => has_hole = to.write_all(&bytes).await.is_err(),
            Piece::End => {
                let _ = to.shutdown().await;
            }
        }
    }
}

/// Returns when what arrived `at` may go on, by the faults of then and not of its arrival: a change
/// takes effect at once. `None` when the proxy's handle is gone.
async fn wait_until_due(
    at: Instant,
    direction: Direction,
    faults: &mut watch::Receiver<Faults>,
) -> Option<Fate> {
    loop {
        let lane = faults.borrow_and_update().lane(direction);
        let changed = if lane.fate == Fate::Hold {
            faults.changed().await
        } else {
            tokio::select! {
                biased;
                changed = faults.changed() => changed,
                () = tokio::time::sleep_until(at + lane.latency) => return Some(lane.fate),
            }
        };
        changed.ok()?;
    }
}
