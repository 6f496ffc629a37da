//! `xds.service.orca.v3.OpenRcaService/StreamCoreMetrics`: reports of the server's load, at the interval that the load
//! balancer requests, at most once a second. Triton has no such service.
//!
//! `application_utilization` is that of the busiest model ([`engine::Load`]). No reports are queued for a client that
//! does not read. The call ends when a shutdown begins, so that no drain waits for it.

use super::message::frame;
use super::reply;
use super::status::Status;
use super::watch::{begin, sleep_for};
use crate::exchange::GrpcStream;
use crate::limits::HEALTH_WATCHERS_MAX;
use crate::shared::Phase;
use engine::{LOAD_AGE, Load};
use protocol::orca::{OrcaLoadReport, OrcaLoadReportRequest};
use std::future::poll_fn;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Serves one load balancer until it disconnects, its deadline passes or the server shuts down.
pub async fn serve(stream: GrpcStream<'_>) {
    let GrpcStream { context, mut call, mut respond, deadline } = stream;
    let until = deadline.map(|limit| Instant::now() + limit);
    let full = format!("{HEALTH_WATCHERS_MAX} clients watch health and load, which is the limit");
    let Some((request, _counted)) = begin(context, &mut call, &mut respond, until, full).await else { return };
    let interval = interval(request);
    let mut phase = context.shared.watch();
    let mut is_first = true;
    let status = loop {
        // Without room the last report was not sent yet.
        if (is_first || respond.capacity() > 0)
            && respond.send_data(frame(&report(context.engine.load())), false).is_err()
        {
            return;
        }
        is_first = false;
        tokio::select! {
            biased;
            // An error means that the server was dropped.
            _ = phase.wait_for(|p| *p != Phase::Serving) => break Status::ok(),
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
            () = sleep_for(until) => break Status::deadline_exceeded(),
            () = sleep(interval) => {}
        }
    };
    reply::end(&mut respond, &status);
}

/// Interval between reports.
fn interval(OrcaLoadReportRequest { report_interval }: OrcaLoadReportRequest) -> Duration {
    let asked = report_interval.unwrap_or_default();
    let seconds = Duration::from_secs(u64::try_from(asked.seconds).unwrap_or(0));
    let rest = Duration::from_nanos(u64::try_from(asked.nanos).unwrap_or(0));
    seconds.saturating_add(rest).max(LOAD_AGE)
}

fn report(Load { utilization, requests_per_second, errors_per_second }: Load) -> OrcaLoadReport {
    OrcaLoadReport { rps_fractional: requests_per_second, eps: errors_per_second, application_utilization: utilization }
}
