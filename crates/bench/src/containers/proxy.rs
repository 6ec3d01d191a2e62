//! Requests through the edge to an instance, beside nginx in front of the same instance.

use super::engine::Engine;
use super::{PORT, Stage, release, stage};
use crate::gateway::peers;
use crate::http;
use crate::load::{self, Repeat, Sample};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use std::net::SocketAddr;
use std::time::Duration;

const SPAN: Duration = Duration::from_secs(2);
const ONE_SPAN: Duration = Duration::from_secs(1);
const CONNECTIONS: usize = 64;
/// Bytes of the response.
const LENGTH: usize = 1024;

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let engine = Engine::find()?;
    let Stage { things, server } = stage(bench, &engine, "proxy", false)?;
    server.create("proxy", "docker", "standard-1x")?;
    server.deploy_body("proxy", &release(&fast_server()))?;
    let (instance, processes) = things.instance()?;
    for id in processes {
        bench.cores.keep_with_load(id)?;
    }
    let directory = bench.options.work.join("proxy-peer");
    std::fs::create_dir_all(&directory)?;
    let nginx = peers::proxy(bench, &directory, instance, true, "")?;
    let request = "GET /some/page?x=1 HTTP/1.1\r\nHost: proxy.localhost\r\nAccept: */*\r\n\
                   User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\r\n";
    for address in [instance, server.edge, nginx.address] {
        let response = http::send(address, request)?;
        let right = response.status == 200 && response.body.len() == LENGTH;
        ensure!(right, "status {} of {address}", response.status);
    }

    let mut rounds = Vec::new();
    for _ in 0..bench.options.rounds {
        let at = |address: SocketAddr, connections, span, cpu: &dyn Fn() -> _| {
            let mut traffic = Repeat::new([request.to_owned()], Some(LENGTH));
            load::measure_relay(&bench.cores, address, connections, span, &mut traffic, cpu)
        };
        let (us, them) = (|| server.child.cpu(), || nginx.child.cpu());
        rounds.push(Round {
            ours: at(server.edge, CONNECTIONS, SPAN, &us)?,
            nginx: at(nginx.address, CONNECTIONS, SPAN, &them)?,
            direct_one: at(instance, 1, ONE_SPAN, &|| Ok(Duration::ZERO))?,
            ours_one: at(server.edge, 1, ONE_SPAN, &us)?,
            nginx_one: at(nginx.address, 1, ONE_SPAN, &them)?,
        });
    }
    report(bench, &rounds);
    server.child.stop()
}

struct Round {
    ours: Sample,
    nginx: Sample,
    direct_one: Sample,
    ours_one: Sample,
    nginx_one: Sample,
}

/// nginx in the container, which answers everything at once.
fn fast_server() -> Vec<String> {
    let response = "x".repeat(LENGTH);
    let config = format!(
        "daemon off; master_process off; pid /tmp/nginx.pid; error_log /tmp/nginx.log crit;
         events {{ worker_connections 4096; }}
         http {{
             access_log off; keepalive_timeout 600s; keepalive_requests 100000000;
             client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;
             uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
             server {{ listen {PORT} backlog=4096; location / {{ return 200 \"{response}\"; }} }}
         }}"
    );
    let script =
        format!("echo '{config}' >/tmp/nginx.conf && exec nginx -p /tmp -c /tmp/nginx.conf");
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

fn report(bench: &mut Bench<'_>, rounds: &[Round]) {
    let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value));
    let mut fact = |name: &str, sample: &dyn Fn(&Round) -> Sample| {
        let row = Row::fact(
            format!("{name}, CPU per request"),
            of(&|r| 1e6 / sample(r).per_cpu()),
            Unit::Microseconds,
        );
        bench.report.add(row.note(format!(
            "{} requests/s, p50 {:.3} ms, p99 {:.3} ms",
            thousands(of(&|r| sample(r).rate())),
            of(&|r| sample(r).p50),
            of(&|r| sample(r).p99),
        )));
    };
    fact("nginx, proxy_pass with keep-alive", &|r| r.nginx);
    fact("estrade", &|r| r.ours);
    let direct = of(&|r| r.direct_one.p50) * 1000.0;
    let row = Row::fact(
        "one connection, p50 without a proxy",
        direct,
        Unit::Microseconds,
    );
    bench.report.add(row.note(format!(
        "nginx {:.1} µs, estrade {:.1} µs",
        of(&|r| r.nginx_one.p50) * 1000.0,
        of(&|r| r.ours_one.p50) * 1000.0,
    )));
    let mut ratio = |name: &str, value: f64, target: Target| {
        bench
            .report
            .add(Row::judged(name, value, Unit::Times, target));
    };
    ratio(
        "requests per CPU-second against nginx",
        of(&|r| r.ours.per_cpu() / r.nginx.per_cpu()),
        Target::AtLeast(0.7),
    );
    ratio(
        "one connection, added p50 against nginx's",
        of(&|r| (r.ours_one.p50 - r.direct_one.p50) / (r.nginx_one.p50 - r.direct_one.p50)),
        Target::AtMost(1.6),
    );
}
