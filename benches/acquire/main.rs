//! Acquire and release on local masters, each beside its raw limit: the same commands through the same kind
//! of connections, with nothing but a count to the quorum. Fenced acquire stands beside plain acquire.
//!
//! Criterion reports each by itself. The ratios at the end come from short blocks of all that take turns,
//! so that whatever else the machine does falls on all alike. One node by itself shares no core with another, on
//! a quiet machine; five nodes are also tried at a distance, as in one data centre. Last comes how many fenced
//! leases took a second round where eight contend.

mod contention;
mod distance;
mod raw;

use std::time::{Duration, Instant};

use criterion::Criterion;
use leasehold::Redlock;
use leasehold::testing::LocalMasters;
use raw::Raw;
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(10);
const TOKEN: &str = "0123456789012345678901234567890123456789";
/// Blocks of each kind, and operations in a block.
const BLOCKS: usize = 100;
const BLOCK: u64 = 100;

/// Nodes, and how far away they are: the time that each way takes.
const FLEETS: [(usize, Duration); 4] =
    [(1, Duration::ZERO), (3, Duration::ZERO), (5, Duration::ZERO), (5, Duration::from_micros(250))];

#[derive(Clone, Copy)]
enum Side {
    Leasehold,
    Fenced,
    Raw,
    RawFenced,
}

const SIDES: [(&str, Side); 4] = [
    ("leasehold", Side::Leasehold),
    ("fenced", Side::Fenced),
    ("raw limit", Side::Raw),
    ("raw limit, fenced", Side::RawFenced),
];

#[derive(Clone, Copy)]
enum Operation {
    Acquire,
    Release,
}

struct Bench {
    redlock: Redlock,
    raw: Raw,
    _masters: LocalMasters,
}

impl Bench {
    async fn start(nodes: usize, delay: Duration) -> Self {
        let masters = LocalMasters::builder().count(nodes).persistent(false).start().await;
        let masters = masters.expect("a redis-server or valkey-server can be started");
        let url = |index| match delay {
            Duration::ZERO => masters.url(index),
            _ => format!("redis://{}", distance::start(masters.addr(index), delay)),
        };
        let urls: Vec<String> = (0..nodes).map(url).collect();
        let redlock = Redlock::connect(&urls).await.expect("the masters are up");
        Self { redlock, raw: Raw::connect(&urls).await, _masters: masters }
    }

    /// The time that `count` operations take. Each acquire is released and each release acquired outside
    /// of the time.
    async fn time(&self, side: Side, operation: Operation, count: u64) -> Duration {
        let mut time = Duration::ZERO;
        for _ in 0..count {
            let [acquire, release] = match side {
                Side::Leasehold | Side::Fenced => {
                    let begun = Instant::now();
                    let request = match side {
                        Side::Fenced => self.redlock.lease("fenced").ttl(TTL).fenced(),
                        _ => self.redlock.lease("ours").ttl(TTL),
                    };
                    let lease = request.try_acquire().await.expect("a quorum answers").expect("it is free");
                    let acquired = Instant::now();
                    lease.release().await.expect("a quorum confirms");
                    [acquired - begun, acquired.elapsed()]
                }
                Side::Raw | Side::RawFenced => {
                    let begun = Instant::now();
                    let key = match side {
                        Side::RawFenced => {
                            self.raw.grant("raw fenced", TOKEN, TTL).await;
                            "raw fenced"
                        }
                        _ => {
                            self.raw.acquire("raw", TOKEN, TTL).await;
                            "raw"
                        }
                    };
                    let acquired = Instant::now();
                    self.raw.release(key, TOKEN).await;
                    [acquired - begun, acquired.elapsed()]
                }
            };
            time += match operation {
                Operation::Acquire => acquire,
                Operation::Release => release,
            };
        }
        time
    }

    /// Medians of blocks that take turns.
    async fn in_turns(&self, operation: Operation) -> [Duration; 4] {
        let mut times = SIDES.map(|_| Vec::new());
        for _ in 0..BLOCKS {
            for ((_, side), times) in SIDES.into_iter().zip(&mut times) {
                times.push(self.time(side, operation, BLOCK).await / BLOCK as u32);
            }
        }
        times.map(|mut times| {
            times.sort();
            times[BLOCKS / 2]
        })
    }
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let mut criterion = Criterion::default().configure_from_args();
    let mut ratios = Vec::new();
    for (nodes, delay) in FLEETS {
        let bench = runtime.block_on(Bench::start(nodes, delay));
        let mut fleet = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        if !delay.is_zero() {
            fleet += &format!(" {:?} away", 2 * delay);
        }
        for (name, operation) in [("acquire", Operation::Acquire), ("release", Operation::Release)] {
            let mut group = criterion.benchmark_group(format!("{name}, {fleet}"));
            for (side_name, side) in SIDES {
                group.bench_function(side_name, |b| {
                    b.iter_custom(|count| runtime.block_on(bench.time(side, operation, count)))
                });
            }
            group.finish();
            ratios.push((format!("{name}, {fleet}"), runtime.block_on(bench.in_turns(operation))));
        }
    }
    criterion.final_summary();
    println!("\nMedians of {BLOCKS} blocks of {BLOCK} operations, in turns:");
    for (name, [plain, fenced, raw, raw_fenced]) in ratios {
        let tell = |what, ours: Duration, limit: Duration| {
            let ratio = ours.as_secs_f64() / limit.as_secs_f64();
            println!("{name}: {what} {ours:.1?} to {limit:.1?}: ratio {ratio:.3}");
        };
        tell("plain to its raw limit,", plain, raw);
        tell("fenced to its raw limit,", fenced, raw_fenced);
        tell("fenced to plain,", fenced, plain);
    }
    for nodes in [3, 5] {
        println!("{}", runtime.block_on(contention::measure(nodes)));
    }
}
