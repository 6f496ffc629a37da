//! Reports of a library about its work: time stamps and memory.

use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::exports::{Out, exports, objects};
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
    /// Memory of a model. Taken note of by nobody yet.
    fn TRITONBACKEND_ModelReportMemoryUsage(_model: &Model, _usage: *const *const BufferAttributes, _usage_size: u32) {}

    /// Memory of an instance. Taken note of by nobody yet.
    fn TRITONBACKEND_ModelInstanceReportMemoryUsage(
        _instance: &Instance,
        _usage: *const *const BufferAttributes,
        _usage_size: u32,
    ) {
    }

    /// Times of a request, in nanoseconds of the steady clock.
    fn TRITONBACKEND_ModelInstanceReportStatistics(
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
    fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
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
    /// An object for the times of a response; the caller deletes it.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsNew(response_statistics: Out<*mut ResponseStatistics>) {
        response_statistics.give(ResponseStatistics::default());
    }

    /// Deletes it.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsDelete(response_statistics: Option<Box<ResponseStatistics>>) {
        drop(response_statistics);
    }

    /// Sets the instance.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
        response_statistics: &mut ResponseStatistics,
        model_instance: Option<&Instance>,
    ) {
        response_statistics.instance = model_instance.map(|instance| Arc::clone(&instance.link));
    }

    /// Sets the factory.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
        response_statistics: &mut ResponseStatistics,
        response_factory: Option<&ResponseFactory>,
    ) {
        response_statistics.ticket = response_factory.map(|factory| Arc::clone(&factory.0));
    }

    /// Sets when the work for the response began.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
        response_statistics: &mut ResponseStatistics,
        response_start: u64,
    ) {
        response_statistics.response_start = response_start;
    }

    /// Sets when its outputs were begun.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
        response_statistics: &mut ResponseStatistics,
        compute_output_start: u64,
    ) {
        response_statistics.compute_output_start = compute_output_start;
    }

    /// Sets when it was ready.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
        response_statistics: &mut ResponseStatistics,
        response_end: u64,
    ) {
        response_statistics.response_end = response_end;
    }

    /// Sets that it failed.
    fn TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
        response_statistics: &mut ResponseStatistics,
        error: Option<&ServerError>,
    ) {
        response_statistics.error = error.map(ServerError::error);
    }

    /// Reports the times of a response.
    fn TRITONBACKEND_ModelInstanceReportResponseStatistics(response_statistics: &mut ResponseStatistics) {
        let statistics = response_statistics;
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
