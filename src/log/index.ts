/** Logging of the whole process: formats, the sink, and the live settings. */

export {
  createLogger,
  openSink,
  openStream,
  type EventSink,
  type Logger,
  type LogSettings,
  type Sink,
} from './logger.js'
export {
  cleanCell,
  escapeMessage,
  formatLine,
  formatTable,
  MESSAGE_BYTES_MAX,
  type LogEvent,
  type LogFormat,
  type LogSeverity,
} from './format.js'
export { fittingEnd, textWidth } from './width.js'
