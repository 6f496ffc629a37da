//! Generated from shm/protocol.json by scripts/generate-runner.mjs: not to be edited.

#![allow(missing_docs)]

pub const VERSION: u64 = 2;

pub const ALIGNMENT: u64 = 64;
pub const INLINE_BYTES_MAX: u64 = 4096;
pub const FRAME_BYTES_MAX: u64 = 268435456;
pub const RANK_MAX: u64 = 64;
pub const TENSORS_MAX: u64 = 4096;
pub const REQUESTS_MAX: u64 = 4096;
pub const SLOTS_MAX: u64 = 65536;
pub const SEGMENTS_MAX: u64 = 64;
pub const BLOCK_OFFSET_BITS: u64 = 40;
pub const DEVICE_SEGMENT: u64 = 65535;
pub const HANDLE_BYTES: u64 = 64;
pub const LEASES_MAX: u64 = 4096;
pub const ALL_OUTPUTS: u64 = 65535;
pub const FD_WORK: u64 = 3;
pub const FD_SIDE: u64 = 4;
pub const FD_REQUEST_SEGMENT: u64 = 5;
pub const FD_RESPONSE_SEGMENT: u64 = 6;
pub const FD_FLAGS: u64 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Frame {
    Load = 1,
    Ready = 2,
    Failed = 3,
    Unload = 4,
    Execute = 10,
    Result = 11,
    Respond = 12,
    Call = 20,
    CallResponse = 21,
    CallCancel = 22,
    CallClose = 23,
    Control = 30,
    ControlResult = 31,
    MetricUpdate = 40,
    Log = 41,
    Report = 42,
    Segment = 50,
    NeedSegment = 51,
    Release = 52,
    CloseHandle = 53,
    NoDevices = 54,
    IsReady = 60,
    IsReadyResult = 61,
    Ping = 62,
    Pong = 63,
}
impl Frame {
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Load,
            2 => Self::Ready,
            3 => Self::Failed,
            4 => Self::Unload,
            10 => Self::Execute,
            11 => Self::Result,
            12 => Self::Respond,
            20 => Self::Call,
            21 => Self::CallResponse,
            22 => Self::CallCancel,
            23 => Self::CallClose,
            30 => Self::Control,
            31 => Self::ControlResult,
            40 => Self::MetricUpdate,
            41 => Self::Log,
            42 => Self::Report,
            50 => Self::Segment,
            51 => Self::NeedSegment,
            52 => Self::Release,
            53 => Self::CloseHandle,
            54 => Self::NoDevices,
            60 => Self::IsReady,
            61 => Self::IsReadyResult,
            62 => Self::Ping,
            63 => Self::Pong,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    Inline = 0,
    Request = 1,
    Response = 2,
    DeviceRequest = 3,
    DeviceResponse = 4,
}
impl Place {
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Inline,
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::DeviceRequest,
            4 => Self::DeviceResponse,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    None = 0,
    Response = 1,
    Error = 2,
    Reschedule = 3,
}
impl Answer {
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Response,
            2 => Self::Error,
            3 => Self::Reschedule,
            _ => return None,
        })
    }
}

pub const EXECUTE_FLAG_FOLLOWED: u8 = 1;
pub const EXECUTE_FLAG_WAITED: u8 = 2;

pub const ANSWER_FLAG_FINAL: u8 = 1;
pub const ANSWER_FLAG_FAILED: u8 = 2;

pub const RESULT_FLAG_FAILED: u8 = 1;

pub const CALL_FLAG_DECOUPLED: u8 = 1;
pub const CALL_FLAG_TRACED: u8 = 2;
pub const CALL_FLAG_DEVICES: u8 = 4;
pub const CALL_FLAG_ACKNOWLEDGED: u8 = 8;
pub const CALL_FLAG_CHECKED: u8 = 16;

pub const REQUEST_FLAG_SEQUENCE_START: u8 = 1;
pub const REQUEST_FLAG_SEQUENCE_END: u8 = 2;
pub const REQUEST_FLAG_TRACED: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LogLevel {
    Verbose = 0,
    Info = 1,
    Warning = 2,
    Error = 3,
}
impl LogLevel {
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Verbose,
            1 => Self::Info,
            2 => Self::Warning,
            3 => Self::Error,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MetricOperation {
    Increment = 0,
    Set = 1,
    Observe = 2,
}
impl MetricOperation {
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Increment,
            1 => Self::Set,
            2 => Self::Observe,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReportKind {
    Success = 0,
    Failure = 1,
    Batch = 2,
    Response = 3,
    ResponseFailed = 4,
    ResponseEmpty = 5,
    ResponseCancelled = 6,
}
impl ReportKind {
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::Failure,
            2 => Self::Batch,
            3 => Self::Response,
            4 => Self::ResponseFailed,
            5 => Self::ResponseEmpty,
            6 => Self::ResponseCancelled,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Header {
    pub length: u32,
    pub frame: u8,
    pub flags: u8,
    pub count: u16,
    pub model: u16,
    pub instance: u16,
}
impl Header {
    pub const BYTES: usize = 12;
    pub fn read(from: &[u8; 12]) -> Self {
        Self {
            length: u32::from_le_bytes([from[0], from[1], from[2], from[3]]),
            frame: u8::from_le_bytes([from[4]]),
            flags: u8::from_le_bytes([from[5]]),
            count: u16::from_le_bytes([from[6], from[7]]),
            model: u16::from_le_bytes([from[8], from[9]]),
            instance: u16::from_le_bytes([from[10], from[11]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.length.to_le_bytes());
        to.extend_from_slice(&self.frame.to_le_bytes());
        to.extend_from_slice(&self.flags.to_le_bytes());
        to.extend_from_slice(&self.count.to_le_bytes());
        to.extend_from_slice(&self.model.to_le_bytes());
        to.extend_from_slice(&self.instance.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExecuteHead {
    pub batch: u64,
    pub releases: u32,
    pub flags: u32,
}
impl ExecuteHead {
    pub const BYTES: usize = 16;
    pub fn read(from: &[u8; 16]) -> Self {
        Self {
            batch: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]),
            releases: u32::from_le_bytes([from[8], from[9], from[10], from[11]]),
            flags: u32::from_le_bytes([from[12], from[13], from[14], from[15]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.batch.to_le_bytes());
        to.extend_from_slice(&self.releases.to_le_bytes());
        to.extend_from_slice(&self.flags.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestHead {
    pub slot: u32,
    pub generation: u32,
    pub correlation: u64,
    pub timeout_us: u64,
    pub flags: u32,
    pub inputs: u16,
    pub outputs: u16,
    pub id_bytes: u32,
    pub correlation_bytes: u32,
    pub parameters_bytes: u32,
    pub trace_bytes: u32,
}
impl RequestHead {
    pub const BYTES: usize = 48;
    pub fn read(from: &[u8; 48]) -> Self {
        Self {
            slot: u32::from_le_bytes([from[0], from[1], from[2], from[3]]),
            generation: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
            correlation: u64::from_le_bytes([
                from[8], from[9], from[10], from[11], from[12], from[13], from[14], from[15],
            ]),
            timeout_us: u64::from_le_bytes([
                from[16], from[17], from[18], from[19], from[20], from[21], from[22], from[23],
            ]),
            flags: u32::from_le_bytes([from[24], from[25], from[26], from[27]]),
            inputs: u16::from_le_bytes([from[28], from[29]]),
            outputs: u16::from_le_bytes([from[30], from[31]]),
            id_bytes: u32::from_le_bytes([from[32], from[33], from[34], from[35]]),
            correlation_bytes: u32::from_le_bytes([from[36], from[37], from[38], from[39]]),
            parameters_bytes: u32::from_le_bytes([from[40], from[41], from[42], from[43]]),
            trace_bytes: u32::from_le_bytes([from[44], from[45], from[46], from[47]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.slot.to_le_bytes());
        to.extend_from_slice(&self.generation.to_le_bytes());
        to.extend_from_slice(&self.correlation.to_le_bytes());
        to.extend_from_slice(&self.timeout_us.to_le_bytes());
        to.extend_from_slice(&self.flags.to_le_bytes());
        to.extend_from_slice(&self.inputs.to_le_bytes());
        to.extend_from_slice(&self.outputs.to_le_bytes());
        to.extend_from_slice(&self.id_bytes.to_le_bytes());
        to.extend_from_slice(&self.correlation_bytes.to_le_bytes());
        to.extend_from_slice(&self.parameters_bytes.to_le_bytes());
        to.extend_from_slice(&self.trace_bytes.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TensorHead {
    pub name_bytes: u16,
    pub datatype: u8,
    pub rank: u8,
    pub place: u8,
    pub reserved: u8,
    pub segment: u16,
    pub offset: u64,
    pub bytes: u64,
}
impl TensorHead {
    pub const BYTES: usize = 24;
    pub fn read(from: &[u8; 24]) -> Self {
        Self {
            name_bytes: u16::from_le_bytes([from[0], from[1]]),
            datatype: u8::from_le_bytes([from[2]]),
            rank: u8::from_le_bytes([from[3]]),
            place: u8::from_le_bytes([from[4]]),
            reserved: u8::from_le_bytes([from[5]]),
            segment: u16::from_le_bytes([from[6], from[7]]),
            offset: u64::from_le_bytes([from[8], from[9], from[10], from[11], from[12], from[13], from[14], from[15]]),
            bytes: u64::from_le_bytes([from[16], from[17], from[18], from[19], from[20], from[21], from[22], from[23]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.name_bytes.to_le_bytes());
        to.extend_from_slice(&self.datatype.to_le_bytes());
        to.extend_from_slice(&self.rank.to_le_bytes());
        to.extend_from_slice(&self.place.to_le_bytes());
        to.extend_from_slice(&self.reserved.to_le_bytes());
        to.extend_from_slice(&self.segment.to_le_bytes());
        to.extend_from_slice(&self.offset.to_le_bytes());
        to.extend_from_slice(&self.bytes.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceTensor {
    pub device: u32,
    pub reserved: u32,
    pub offset: u64,
}
impl DeviceTensor {
    pub const BYTES: usize = 16;
    pub fn read(from: &[u8; 16]) -> Self {
        Self {
            device: u32::from_le_bytes([from[0], from[1], from[2], from[3]]),
            reserved: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
            offset: u64::from_le_bytes([from[8], from[9], from[10], from[11], from[12], from[13], from[14], from[15]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.device.to_le_bytes());
        to.extend_from_slice(&self.reserved.to_le_bytes());
        to.extend_from_slice(&self.offset.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CloseHandle {
    pub device: u32,
    pub reserved: u32,
}
impl CloseHandle {
    pub const BYTES: usize = 8;
    pub fn read(from: &[u8; 8]) -> Self {
        Self {
            device: u32::from_le_bytes([from[0], from[1], from[2], from[3]]),
            reserved: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.device.to_le_bytes());
        to.extend_from_slice(&self.reserved.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ResultHead {
    pub batch: u64,
    pub releases: u32,
    pub error_bytes: u32,
}
impl ResultHead {
    pub const BYTES: usize = 16;
    pub fn read(from: &[u8; 16]) -> Self {
        Self {
            batch: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]),
            releases: u32::from_le_bytes([from[8], from[9], from[10], from[11]]),
            error_bytes: u32::from_le_bytes([from[12], from[13], from[14], from[15]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.batch.to_le_bytes());
        to.extend_from_slice(&self.releases.to_le_bytes());
        to.extend_from_slice(&self.error_bytes.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AnswerHead {
    pub kind: u8,
    pub flags: u8,
    pub outputs: u16,
    pub code: u32,
    pub parameters_bytes: u32,
    pub error_bytes: u32,
}
impl AnswerHead {
    pub const BYTES: usize = 16;
    pub fn read(from: &[u8; 16]) -> Self {
        Self {
            kind: u8::from_le_bytes([from[0]]),
            flags: u8::from_le_bytes([from[1]]),
            outputs: u16::from_le_bytes([from[2], from[3]]),
            code: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
            parameters_bytes: u32::from_le_bytes([from[8], from[9], from[10], from[11]]),
            error_bytes: u32::from_le_bytes([from[12], from[13], from[14], from[15]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.kind.to_le_bytes());
        to.extend_from_slice(&self.flags.to_le_bytes());
        to.extend_from_slice(&self.outputs.to_le_bytes());
        to.extend_from_slice(&self.code.to_le_bytes());
        to.extend_from_slice(&self.parameters_bytes.to_le_bytes());
        to.extend_from_slice(&self.error_bytes.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RespondHead {
    pub slot: u32,
    pub generation: u32,
}
impl RespondHead {
    pub const BYTES: usize = 8;
    pub fn read(from: &[u8; 8]) -> Self {
        Self {
            slot: u32::from_le_bytes([from[0], from[1], from[2], from[3]]),
            generation: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.slot.to_le_bytes());
        to.extend_from_slice(&self.generation.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CallHead {
    pub call: u64,
    pub version: i64,
    pub parent_slot: u32,
    pub parent_generation: u32,
    pub model_bytes: u16,
    pub flags: u8,
    pub reserved: u8,
    pub priority: u32,
}
impl CallHead {
    pub const BYTES: usize = 32;
    pub fn read(from: &[u8; 32]) -> Self {
        Self {
            call: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]),
            version: i64::from_le_bytes([from[8], from[9], from[10], from[11], from[12], from[13], from[14], from[15]]),
            parent_slot: u32::from_le_bytes([from[16], from[17], from[18], from[19]]),
            parent_generation: u32::from_le_bytes([from[20], from[21], from[22], from[23]]),
            model_bytes: u16::from_le_bytes([from[24], from[25]]),
            flags: u8::from_le_bytes([from[26]]),
            reserved: u8::from_le_bytes([from[27]]),
            priority: u32::from_le_bytes([from[28], from[29], from[30], from[31]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.call.to_le_bytes());
        to.extend_from_slice(&self.version.to_le_bytes());
        to.extend_from_slice(&self.parent_slot.to_le_bytes());
        to.extend_from_slice(&self.parent_generation.to_le_bytes());
        to.extend_from_slice(&self.model_bytes.to_le_bytes());
        to.extend_from_slice(&self.flags.to_le_bytes());
        to.extend_from_slice(&self.reserved.to_le_bytes());
        to.extend_from_slice(&self.priority.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CallId {
    pub call: u64,
}
impl CallId {
    pub const BYTES: usize = 8;
    pub fn read(from: &[u8; 8]) -> Self {
        Self { call: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]) }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.call.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MetricUpdate {
    pub metric: u64,
    pub value: f64,
    pub operation: u8,
}
impl MetricUpdate {
    pub const BYTES: usize = 17;
    pub fn read(from: &[u8; 17]) -> Self {
        Self {
            metric: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]),
            value: f64::from_le_bytes([from[8], from[9], from[10], from[11], from[12], from[13], from[14], from[15]]),
            operation: u8::from_le_bytes([from[16]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.metric.to_le_bytes());
        to.extend_from_slice(&self.value.to_le_bytes());
        to.extend_from_slice(&self.operation.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Report {
    pub kind: u8,
    pub reserved: u8,
    pub reserved2: u16,
    pub slot: u32,
    pub generation: u32,
    pub index: u32,
    pub size: u64,
    pub start: u64,
    pub compute_start: u64,
    pub compute_end: u64,
    pub end: u64,
}
impl Report {
    pub const BYTES: usize = 56;
    pub fn read(from: &[u8; 56]) -> Self {
        Self {
            kind: u8::from_le_bytes([from[0]]),
            reserved: u8::from_le_bytes([from[1]]),
            reserved2: u16::from_le_bytes([from[2], from[3]]),
            slot: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
            generation: u32::from_le_bytes([from[8], from[9], from[10], from[11]]),
            index: u32::from_le_bytes([from[12], from[13], from[14], from[15]]),
            size: u64::from_le_bytes([from[16], from[17], from[18], from[19], from[20], from[21], from[22], from[23]]),
            start: u64::from_le_bytes([from[24], from[25], from[26], from[27], from[28], from[29], from[30], from[31]]),
            compute_start: u64::from_le_bytes([
                from[32], from[33], from[34], from[35], from[36], from[37], from[38], from[39],
            ]),
            compute_end: u64::from_le_bytes([
                from[40], from[41], from[42], from[43], from[44], from[45], from[46], from[47],
            ]),
            end: u64::from_le_bytes([from[48], from[49], from[50], from[51], from[52], from[53], from[54], from[55]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.kind.to_le_bytes());
        to.extend_from_slice(&self.reserved.to_le_bytes());
        to.extend_from_slice(&self.reserved2.to_le_bytes());
        to.extend_from_slice(&self.slot.to_le_bytes());
        to.extend_from_slice(&self.generation.to_le_bytes());
        to.extend_from_slice(&self.index.to_le_bytes());
        to.extend_from_slice(&self.size.to_le_bytes());
        to.extend_from_slice(&self.start.to_le_bytes());
        to.extend_from_slice(&self.compute_start.to_le_bytes());
        to.extend_from_slice(&self.compute_end.to_le_bytes());
        to.extend_from_slice(&self.end.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogHead {
    pub level: u8,
    pub reserved: u8,
    pub file_bytes: u16,
    pub line: u32,
    pub text_bytes: u32,
}
impl LogHead {
    pub const BYTES: usize = 12;
    pub fn read(from: &[u8; 12]) -> Self {
        Self {
            level: u8::from_le_bytes([from[0]]),
            reserved: u8::from_le_bytes([from[1]]),
            file_bytes: u16::from_le_bytes([from[2], from[3]]),
            line: u32::from_le_bytes([from[4], from[5], from[6], from[7]]),
            text_bytes: u32::from_le_bytes([from[8], from[9], from[10], from[11]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.level.to_le_bytes());
        to.extend_from_slice(&self.reserved.to_le_bytes());
        to.extend_from_slice(&self.file_bytes.to_le_bytes());
        to.extend_from_slice(&self.line.to_le_bytes());
        to.extend_from_slice(&self.text_bytes.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Segment {
    pub bytes: u64,
    pub segment: u16,
    pub place: u8,
    pub refused: u8,
}
impl Segment {
    pub const BYTES: usize = 12;
    pub fn read(from: &[u8; 12]) -> Self {
        Self {
            bytes: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]),
            segment: u16::from_le_bytes([from[8], from[9]]),
            place: u8::from_le_bytes([from[10]]),
            refused: u8::from_le_bytes([from[11]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.bytes.to_le_bytes());
        to.extend_from_slice(&self.segment.to_le_bytes());
        to.extend_from_slice(&self.place.to_le_bytes());
        to.extend_from_slice(&self.refused.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NeedSegment {
    pub bytes: u64,
}
impl NeedSegment {
    pub const BYTES: usize = 8;
    pub fn read(from: &[u8; 8]) -> Self {
        Self { bytes: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]) }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.bytes.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Question {
    pub question: u64,
}
impl Question {
    pub const BYTES: usize = 8;
    pub fn read(from: &[u8; 8]) -> Self {
        Self { question: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]) }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.question.to_le_bytes());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IsReadyResult {
    pub question: u64,
    pub is_ready: u8,
}
impl IsReadyResult {
    pub const BYTES: usize = 9;
    pub fn read(from: &[u8; 9]) -> Self {
        Self {
            question: u64::from_le_bytes([from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7]]),
            is_ready: u8::from_le_bytes([from[8]]),
        }
    }
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.question.to_le_bytes());
        to.extend_from_slice(&self.is_ready.to_le_bytes());
    }
}
