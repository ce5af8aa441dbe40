//! A network between client and master: what passes takes its time each way, and the order stays.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Starts one to `master` that takes `delay` each way, and tells its address. Threads, because the timers of
/// the runtime count whole milliseconds. It ends with the process.
pub(crate) fn start(master: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let master = TcpStream::connect(master).expect("the master is up");
            for (from, to) in [(&client, &master), (&master, &client)] {
                to.set_nodelay(true).expect("a TCP connection");
                let (from, to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
                carry(from, to, delay);
            }
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (pass, passing) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut room = [0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut room) {
            // Whoever would deliver it may be gone, and then so is the connection.
            let _ = pass.send((Instant::now() + delay, room[..length].to_vec()));
        }
    });
    thread::spawn(move || {
        for (due, bytes) in passing {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // The other side may have closed it already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
