//! Reports of a library about its work: time stamps and memory.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::instance::Instance;
use super::model::Model;
use super::request::Request;
use super::response::ResponseFactory;
use super::{Err, delete, get, guard, object, object_mut};
use crate::link::Link;
use crate::ticket::{Ticket, report};
use frames::generated::{Report, ReportKind};
use std::sync::Arc;
use tensor::{Code, Error};

/// Memory of a model. Taken note of by nobody yet.
///
/// # Safety
/// `model` is live, `usage` has `usage_size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelReportMemoryUsage(
    model: *const Model,
    _usage: *const *const BufferAttributes,
    _usage_size: u32,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { object(model, "model").map(drop) })
}

/// Memory of an instance. Taken note of by nobody yet.
///
/// # Safety
/// `instance` is live, `usage` has `usage_size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportMemoryUsage(
    instance: *const Instance,
    _usage: *const *const BufferAttributes,
    _usage_size: u32,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { object(instance, "instance").map(drop) })
}

/// Times of a request, in nanoseconds of the steady clock.
///
/// # Safety
/// `instance` and `request` are live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportStatistics(
    instance: *const Instance,
    request: *const Request,
    success: bool,
    exec_start_ns: u64,
    compute_start_ns: u64,
    compute_end_ns: u64,
    exec_end_ns: u64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let (instance, request) = unsafe { (object(instance, "instance")?, object(request, "request")?) };
        let kind = if success { ReportKind::Success } else { ReportKind::Failure };
        let times = Report {
            start: exec_start_ns,
            compute_start: compute_start_ns,
            compute_end: compute_end_ns,
            end: exec_end_ns,
            ..request.ticket.report()
        };
        report(&instance.link, kind, times);
        Ok(())
    })
}

/// Times of a batch, in nanoseconds of the steady clock.
///
/// # Safety
/// `instance` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportBatchStatistics(
    instance: *const Instance,
    batch_size: u64,
    exec_start_ns: u64,
    compute_start_ns: u64,
    compute_end_ns: u64,
    exec_end_ns: u64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let instance = unsafe { object(instance, "instance")? };
        let times = Report {
            size: batch_size,
            start: exec_start_ns,
            compute_start: compute_start_ns,
            compute_end: compute_end_ns,
            end: exec_end_ns,
            ..Report::default()
        };
        report(&instance.link, ReportKind::Batch, times);
        Ok(())
    })
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

/// An object for the times of a response; the caller deletes it.
///
/// # Safety
/// `response_statistics` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    response_statistics: *mut *mut ResponseStatistics,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(response_statistics, || Ok(Box::into_raw(Box::default()))) }
}

/// Deletes it.
///
/// # Safety
/// `response_statistics` is null or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    response_statistics: *mut ResponseStatistics,
) -> Err {
    // SAFETY: made by `Box::into_raw`, and the caller gives it up.
    unsafe { delete(response_statistics) }
}

/// Sets the instance.
///
/// # Safety
/// `response_statistics` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    response_statistics: *mut ResponseStatistics,
    model_instance: *const Instance,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let instance = model_instance.as_ref().map(|instance| Arc::clone(&instance.link));
        object_mut(response_statistics, "response statistics")?.instance = instance;
        Ok(())
    })
}

/// Sets the factory.
///
/// # Safety
/// `response_statistics` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    response_statistics: *mut ResponseStatistics,
    response_factory: *const ResponseFactory,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response_statistics, "response statistics")?.ticket =
            response_factory.as_ref().map(|factory| Arc::clone(&factory.0));
        Ok(())
    })
}

/// Sets when the work for the response began.
///
/// # Safety
/// `response_statistics` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    response_statistics: *mut ResponseStatistics,
    response_start: u64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response_statistics, "response statistics")?.response_start = response_start;
        Ok(())
    })
}

/// Sets when its outputs were begun.
///
/// # Safety
/// `response_statistics` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    response_statistics: *mut ResponseStatistics,
    compute_output_start: u64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response_statistics, "response statistics")?.compute_output_start = compute_output_start;
        Ok(())
    })
}

/// Sets when it was ready.
///
/// # Safety
/// `response_statistics` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    response_statistics: *mut ResponseStatistics,
    response_end: u64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response_statistics, "response statistics")?.response_end = response_end;
        Ok(())
    })
}

/// Sets that it failed.
///
/// # Safety
/// `response_statistics` is the caller's; `error` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    response_statistics: *mut ResponseStatistics,
    error: *const ServerError,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response_statistics, "response statistics")?.error = error.as_ref().map(ServerError::error);
        Ok(())
    })
}

/// Reports the times of a response.
///
/// # Safety
/// `response_statistics` is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceReportResponseStatistics(
    response_statistics: *mut ResponseStatistics,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let statistics = unsafe { object_mut(response_statistics, "response statistics")? };
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
        Ok(())
    })
}
