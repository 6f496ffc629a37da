//! Load reports for load balancers, written by hand: three of the eleven fields of the xDS packages `xds.data.orca.v3`
//! and `xds.service.orca.v3`.

/// `xds.service.orca.v3.OrcaLoadReportRequest`, without the names of costs, which the server does not report.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReportRequest {
    /// Interval between two reports.
    #[prost(message, optional, tag = "1")]
    pub report_interval: Option<Interval>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Interval {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Fraction of a second, in ns.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `xds.data.orca.v3.OrcaLoadReport`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct OrcaLoadReport {
    /// Requests per second.
    #[prost(double, tag = "6")]
    pub rps_fractional: f64,
    /// Errors per second.
    #[prost(double, tag = "7")]
    pub eps: f64,
    /// Utilisation of the application; more than 1 is overload.
    #[prost(double, tag = "9")]
    pub application_utilization: f64,
}
