//! Reports of a library about its work: time stamps and memory.

use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::exports::{Lent, Out, exports, objects};
use super::instance::Instance;
use super::model::Model;
use super::request::Request;
use super::response::ResponseFactory;
use crate::link::Link;
use crate::ticket::{Ticket, report};
use frames::generated::{Report, ReportKind};
use std::sync::Arc;
use tensor::{Code, Error};

objects! {
    ResponseStatistics: "response statistics";
}

exports! {
    /// Accepts the memory of a model; nothing uses it yet.
    "model" fn TRITONBACKEND_ModelReportMemoryUsage(_model: &Model, _usage: Lent<Lent<BufferAttributes>>, _size: u32) {}

    /// Accepts the memory of an instance; nothing uses it yet.
    "instance" fn TRITONBACKEND_ModelInstanceReportMemoryUsage(
        _instance: &Instance,
        _usage: Lent<Lent<BufferAttributes>>,
        _usage_size: u32,
    ) {}

    /// Times of a request, in nanoseconds of the steady clock.
    "stats" fn TRITONBACKEND_ModelInstanceReportStatistics(
        instance: &Instance,
        request: &Request,
        success: bool,
        exec_start_ns: u64,
        compute_start_ns: u64,
        compute_end_ns: u64,
        exec_end_ns: u64,
    ) {
        let kind = if success { ReportKind::Success } else { ReportKind::Failure };
        let times = Report {
            start: exec_start_ns,
            compute_start: compute_start_ns,
            compute_end: compute_end_ns,
            end: exec_end_ns,
            ..request.ticket.report()
        };
        report(&instance.link, kind, times);
    }

    /// Times of a batch, in nanoseconds of the steady clock.
    "stats" fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance: &Instance,
        batch_size: u64,
        exec_start_ns: u64,
        compute_start_ns: u64,
        compute_end_ns: u64,
        exec_end_ns: u64,
    ) {
        let times = Report {
            size: batch_size,
            start: exec_start_ns,
            compute_start: compute_start_ns,
            compute_end: compute_end_ns,
            end: exec_end_ns,
            ..Report::default()
        };
        report(&instance.link, ReportKind::Batch, times);
    }
}

/// Times of one response of a decoupled model.
#[derive(Default)]
pub(crate) struct ResponseStatistics {
    instance: Option<Arc<Link>>,
    ticket: Option<Arc<Ticket>>,
    response_start: u64,
    compute_output_start: u64,
    response_end: u64,
    error: Option<Error>,
}

exports! {
    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsNew(statistics: Out<*mut ResponseStatistics>) =>
        statistics.give(ResponseStatistics::default());

    "stats" delete TRITONBACKEND_ModelInstanceResponseStatisticsDelete(ResponseStatistics);

    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
        statistics: &mut ResponseStatistics,
        model_instance: Option<&Instance>,
    ) => statistics.instance = model_instance.map(|instance| Arc::clone(&instance.link));

    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
        statistics: &mut ResponseStatistics,
        response_factory: Option<&ResponseFactory>,
    ) => statistics.ticket = response_factory.map(|factory| Arc::clone(&factory.0));

    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
        statistics: &mut ResponseStatistics,
        response_start: u64,
    ) => statistics.response_start = response_start;

    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
        statistics: &mut ResponseStatistics,
        compute_output_start: u64,
    ) => statistics.compute_output_start = compute_output_start;

    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
        statistics: &mut ResponseStatistics,
        response_end: u64,
    ) => statistics.response_end = response_end;

    "stats" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
        statistics: &mut ResponseStatistics,
        error: Option<&ServerError>,
    ) => statistics.error = error.map(ServerError::error);

    "stats" fn TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics: &ResponseStatistics) {
        let (Some(link), Some(ticket)) = (&statistics.instance, &statistics.ticket) else {
            return Err(Error::invalid("response statistics have no model instance, or no response factory"));
        };
        let kind = match &statistics.error {
            Some(error) if error.code() == Code::Cancelled => ReportKind::ResponseCancelled,
            Some(_) => ReportKind::ResponseFailed,
            None if statistics.compute_output_start == 0 => ReportKind::ResponseEmpty,
            None => ReportKind::Response,
        };
        let times = Report {
            index: ticket.next_reported(),
            start: statistics.response_start,
            compute_end: statistics.compute_output_start,
            end: statistics.response_end,
            ..ticket.report()
        };
        report(link, kind, times);
    }
}
