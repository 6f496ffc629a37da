/** The connection of a runner to the server: which transport carries the frames is not known here. */

/** Way of a frame: one batch at a time, and everything else. */
export const WORK = 0
export const SIDE = 1
export type Way = typeof WORK | typeof SIDE

/** Shared memory of a runner. Absent if LOAD names no segments: all tensors are inline then. */
export interface SharedMemory {
  /** An ArrayBuffer over a segment of responses (0, or the number of a SEGMENT frame): the same object each time. */
  responses(segment: number): ArrayBuffer
  /** An ArrayBuffer over one block of a request segment. */
  request(segment: number, offset: number, bytes: number): ArrayBuffer
  /** Ends all views of a block, whose length is 0 afterwards. Called before the block is given back. */
  detach(buffer: ArrayBuffer): void
  /** One byte for each slot of a request: shm/README.md. */
  flags(): Uint8Array
}

/** Receives one or more whole frames: these bytes of a buffer, or all of it, which belong to the receiver. */
export type Receive = (frames: Uint8Array, from?: number, to?: number) => void

/** Carries the frames of shm/README.md. */
export interface Channel {
  /** Sends whole frames. The bytes are read before it returns; calls keep their order. */
  send(way: Way, frames: Uint8Array): void
  /** Starts the delivery. */
  start(receive: Receive): void
  memory?: SharedMemory
  /** The flags of the slots below `end`, as they are now, of a runner that has them without other shared memory. */
  flagsBelow?(end: number): Uint8Array
  /** A promise while the server does not read frames of the side. */
  room?(): Promise<void> | null
}

/** `workerData` of a worker thread. */
export interface WorkerData {
  /** Path of the native module. */
  library: string
  /** Number to attach with; null for a spare worker, which gets it in a message. */
  runner: number | null
}
