//! Signals that are passed on to the command, or end the wait for its lease.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// These end the wait for a lease.
const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
/// These are for the command only.
const OTHERS: [Signal; 3] = [Signal::USR1, Signal::USR2, Signal::WINCH];

/// Listens from its making on. A signal that this process was told to ignore stays ignored, by the
/// command too: so says `nohup`.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// The last ending signal. Set within the signal's handler, while a stream tells of it some time later.
    arrived: Arc<AtomicUsize>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let arrived = Arc::new(AtomicUsize::new(0));
        let mut streams = Vec::new();
        for signal in ENDING.into_iter().chain(OTHERS) {
            let number = signal.as_raw();
            if ignored & mask(number) != 0 {
                continue;
            }
            if ENDING.contains(&signal) {
                let value = usize::try_from(number).unwrap_or_default();
                signal_hook::flag::register_usize(number, arrived.clone(), value)?;
            }
            streams.push((signal, unix::signal(SignalKind::from_raw(number))?));
        }
        Ok(Self { streams, arrived })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a wait; others are dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }

    /// The ending signal that has arrived by now, if one has: also one that no stream has told of yet.
    pub(crate) fn arrived(&self) -> Option<Signal> {
        let number = self.arrived.load(Ordering::SeqCst);
        ENDING.into_iter().find(|signal| usize::try_from(signal.as_raw()) == Ok(number))
    }
}

fn mask(number: i32) -> u64 {
    u32::try_from(number - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)).unwrap_or(0)
}

/// The signals that this process was started to ignore, a bit each; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status)
}

fn ignored_in(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_ending_signal_is_known_before_the_runtime_tells_of_it() {
        let mut signals = Signals::listen().unwrap();
        assert_eq!(signals.arrived(), None);
        // To this thread: its handler has run when this returns, and nothing was awaited.
        signal_hook::low_level::raise(Signal::USR2.as_raw()).unwrap();
        assert_eq!(signals.arrived(), None, "does not end a wait");
        signal_hook::low_level::raise(Signal::HUP.as_raw()).unwrap();
        assert_eq!(signals.arrived(), Some(Signal::HUP));
        assert_eq!(signals.ending().await, Signal::HUP);
    }

    #[test]
    fn ignored_signals_are_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let ignored = ignored_in(status);
        assert_ne!(ignored & mask(Signal::HUP.as_raw()), 0);
        assert_eq!(ignored & mask(Signal::INT.as_raw()), 0);
        assert_eq!(ignored_in(""), 0);
        assert_eq!(mask(0), 0);
        assert_eq!(mask(65), 0);
    }
}
