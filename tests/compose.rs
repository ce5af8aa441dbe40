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

/// How many of the nodes granted the key.
async fn take_a_lease(urls: &[String], key: &str) -> usize {
    let mut granted = 0;
    for url in urls {
        let client = redis::Client::open(url.as_str()).expect("an address");
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
            continue;
        };
        let mut set = redis::cmd("SET");
        set.arg(key).arg("token").arg("NX").arg("PX").arg(10_000);
        let answer: redis::RedisResult<Option<String>> = set.query_async(&mut connection).await;
        if matches!(answer, Ok(Some(_))) {
            granted += 1;
        }
    }
    granted
}
