/**
 * The interface to a cloud's object storage. Each cloud has a client in `cloud/`, which `npm run stores` bundles with
 * the cloud's library into `dist/stores/<scheme>.mjs`. A worker thread loads it when a repository uses the scheme.
 */

/** Schemes of repositories that are not local. */
export const SCHEMES = ['s3', 'gs', 'as'] as const
export type Scheme = (typeof SCHEMES)[number]

/** The scheme in front of `://` as written; null for a path. */
export function writtenScheme(path: string): string | null {
  return /^([a-z0-9]+):\/\//i.exec(path)?.[1] ?? null
}

/** The scheme of a repository in a cloud; null for anything else. */
export function schemeOf(path: string): Scheme | null {
  const scheme = writtenScheme(path)
  return SCHEMES.find((known) => known === scheme) ?? null
}

/** One object below the path of a repository. */
export interface StoredObject {
  /**
   * Name relative to the repository, without a leading slash: `model/1/model.onnx`. A trailing slash means a directory:
   * consoles create such objects, and a version of an ensemble has nothing else.
   */
  path: string
  /** In bytes. */
  size: number
  /** Identifies the content, and is sent with the bytes: an ETag or a generation. */
  version: string
  /** MD5 in hexadecimal digits, or null. A read sets it to null if the response shows that it is not an MD5. */
  md5: string | null
}

/** Algorithms of checksums that are compared; storage may have others. */
export type ChecksumAlgorithm = 'MD5' | 'SHA1' | 'SHA256' | 'SHA512' | 'CRC32' | 'CRC32C' | 'CRC64NVME'

/** Checksum of an object's content, computed when it was uploaded. */
export interface Checksum {
  algorithm: ChecksumAlgorithm
  /** In hexadecimal digits. */
  digest: string
  /**
   * For an upload in parts whose digest is that of the parts' digests: the size of each part but the last, which may be
   * smaller. Null for a digest of the content.
   */
  partBytes: number | null
}

/** Classes of failures. */
export type StoreFailure =
  /** The bucket, container or object does not exist. */
  | 'absent'
  /** Credentials are missing, expired or insufficient. */
  | 'denied'
  /** The object has changed since it was listed. */
  | 'changed'
  /** No response, a broken connection, 5xx, or "slow down": may work later. */
  | 'unavailable'
  /** The content does not have the checksum of the storage, also when it was downloaded again. */
  | 'damaged'
  /** The location, the credentials or the name of an object are malformed. */
  | 'invalid'
  /** The local disk failed. */
  | 'local'

/** The message says what was requested, what storage answered, and what to do; it contains no secrets. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly failure: StoreFailure

  constructor(failure: StoreFailure, message: string, options?: ErrorOptions) {
    super(message, options)
    this.failure = failure
  }
}

/** Why storage failed; null for other errors. Checks the name, because bundled clients have their own class. */
export function storeFailure(error: unknown): StoreFailure | null {
  return error instanceof Error && error.name === 'StoreError' ? (error as StoreError).failure : null
}

/** One repository in the storage of a cloud. */
export interface StoreClient {
  /**
   * Lists every object of the repository, in pages as storage sends them. Keeps no page.
   *
   * @throws {StoreError}
   */
  list(signal: AbortSignal): AsyncIterable<StoredObject[]>
  /**
   * Reads the bytes from `from` (inclusive) to `to` (exclusive) of this version of an object. Ends early or throws when
   * the connection breaks; does not retry once bytes were received.
   *
   * @throws {StoreError} `changed` when the object has another version now
   */
  read(object: StoredObject, from: number, to: number, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>
  /**
   * Asks for the checksum of an object without MD5, after its bytes were read; `missing` says why there is none that
   * can be compared. A client without this method has only MD5.
   *
   * @throws {StoreError} `changed` when the object has another version now
   */
  checksum?(object: StoredObject, signal: AbortSignal): Promise<Checksum | { missing: string }>
  /** Closes the connections. */
  close(): void
}

/** The export `open` of `dist/stores/<scheme>.mjs`. */
export type OpenStore = (url: string, environment: NodeJS.ProcessEnv) => Promise<StoreClient>
