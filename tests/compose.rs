//! `docker-compose.yml` gives five masters that hold a lease, also when one is down.
//!
//! Not part of plain `cargo test`, because it needs a container engine and the ports 7001 to 7005:
//! `cargo test --test compose`, or `scripts/test`, which runs it where an engine answers. It fails
//! where none does.

mod compose {
    mod engine;
    mod image;
    mod project;

    use super::take_a_lease;
    use project::Project;

    #[tokio::test]
    async fn five_masters_come_up_healthy_and_hold_a_lease_with_one_stopped() {
        engine::check().await;
        project::check_ports();
        let _image = image::provide().await;
        let project = Project::up().await;
        project.wait_until_healthy().await;

        let urls: Vec<String> = project::PORTS.map(|port| format!("redis://127.0.0.1:{port}")).to_vec();
        assert_eq!(take_a_lease(&urls, "with-all").await, 5);
        project.stop("master2").await;
        assert_eq!(take_a_lease(&urls, "without-one").await, 4);

        project.down().await;
    }
}

/// Takes a lease and gives it back. Returns how many of the nodes held the key meanwhile.
async fn take_a_lease(urls: &[String], key: &str) -> usize {
    let redlock = leasehold::Redlock::connect(urls).await.expect("five good addresses");
    let lease = redlock.lease(key).acquire().await.expect("a quorum is up");
    let mut holders = 0;
    for url in urls {
        holders += usize::from(value(url, key).await.as_deref() == Some(lease.token().as_str()));
    }
    lease.release().await.expect("a quorum is up");
    redlock.close().await;
    holders
}

async fn value(url: &str, key: &str) -> Option<String> {
    let client = redis::Client::open(url).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.ok()?;
    redis::cmd("GET").arg(key).query_async(&mut connection).await.ok()?
}
