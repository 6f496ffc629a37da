/**
 * What the repository needs of a cloud's object storage. Each cloud has a client in a file of its own beside this one, bundled with the cloud's
 * own library to `dist/stores/<scheme>.mjs`, which `npm run stores` makes. They are read when a repository names the scheme, by a worker thread.
 */

/** Schemes of repositories that are not on a disk. */
export const SCHEMES = ['s3', 'gs', 'as'] as const
export type Scheme = (typeof SCHEMES)[number]

/** The scheme in front of `://`, as it is written; null for a path. */
export function writtenScheme(path: string): string | null {
  return /^([a-z0-9]+):\/\//i.exec(path)?.[1] ?? null
}

/** The scheme of a repository in the storage of a cloud; null for anything else. */
export function schemeOf(path: string): Scheme | null {
  const scheme = writtenScheme(path)
  return SCHEMES.find((known) => known === scheme) ?? null
}

/** One object below the path of a repository. */
export interface StoredObject {
  /**
   * Its name below the path of the repository, without a slash in front: `model/1/model.onnx`. One that ends with a slash stands for a directory:
   * consoles make such objects, and a version of an ensemble has nothing else.
   */
  path: string
  /** In bytes. */
  size: number
  /** Differs when the content does, and is read with the bytes: an ETag, or a generation. */
  version: string
  /** MD5 of the content in hexadecimal digits, where the storage tells it; else null. A read makes it null when its answer tells that it is none. */
  md5: string | null
}

/** Why storage did not give what was asked. */
export type StoreFailure =
  /** The bucket, the container or the object is not there. */
  | 'absent'
  /** Credentials are missing, expired or not enough. */
  | 'denied'
  /** The object is another one than was listed. */
  | 'changed'
  /** No answer, a cut connection, 5xx, or "slow down": may work later. */
  | 'unavailable'
  /** The location, the credentials or the name of an object are not as they have to be. */
  | 'invalid'
  /** Not storage, but the disk here. */
  | 'local'

/** The message says what was asked, what storage answered, and what to do; it holds no secrets. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly failure: StoreFailure

  constructor(failure: StoreFailure, message: string, options?: ErrorOptions) {
    super(message, options)
    this.failure = failure
  }
}

/** Why storage failed; null for any other error. The file of a cloud's client has a class of its own, so the class is not asked. */
export function storeFailure(error: unknown): StoreFailure | null {
  return error instanceof Error && error.name === 'StoreError' ? (error as StoreError).failure : null
}

/** One repository in the storage of a cloud. */
export interface StoreClient {
  /**
   * Every object of the repository, in pages as storage gives them. No page is kept.
   *
   * @throws {StoreError}
   */
  list(signal: AbortSignal): AsyncIterable<StoredObject[]>
  /**
   * The bytes from `from` up to `to`, without `to`, of this version of an object. Ends early, or throws, when the connection is cut; does not try
   * again by itself once bytes came.
   *
   * @throws {StoreError} `changed` when it is another version now
   */
  read(object: StoredObject, from: number, to: number, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>
  /** Ends its connections. */
  close(): void
}

/** What `dist/stores/<scheme>.mjs` exports as `open`. */
export type OpenStore = (url: string, environment: NodeJS.ProcessEnv) => Promise<StoreClient>
