/** The common part of all clients: names of objects, checks of responses, and error messages. */
import type { Readable } from 'node:stream'
import {
  StoreError,
  storeFailure,
  type Checksum,
  type StoreClient,
  type StoreFailure,
  type StoredObject,
} from '../client.js'
import { Agents, Requests, bytes, codeOf, type Answer } from './requests.js'

/** Location of a repository. */
export interface Location {
  /** URL for messages. */
  url: string
  /** Name of the service for messages: "https://storage.googleapis.com", "S3". */
  endpoint: string
  bucket: string
  /** Path without leading and trailing slashes. */
  path: string
}

/** Explanation of a library's error. */
export interface Meaning {
  answer: Answer
  /** If it does not follow from the status. */
  failure?: StoreFailure | undefined
  /** The service that answered, if it was not the storage. */
  endpoint?: string
  /** Advice that replaces the usual one. */
  advice?: string
}

/** Bytes from `from` (inclusive) to `to` (exclusive). Members that the storage does not report are undefined. */
export interface Range {
  stream: Readable
  version: string | undefined
  length: number | undefined
  /** True if the listing's MD5 is not an MD5 of the content. */
  isWithoutMd5?: boolean
}

/** Checksum of an object that has no MD5, or why there is none that can be compared. */
export type Found = Checksum | { missing: string }

/** A successful response that is not from storage, for example of a proxy; as a listing it would have no models. */
export class ForeignResponse extends Error {}

/** The part of a client that is specific to a cloud. */
export interface Cloud<Client> {
  location: Location
  /** The cloud's word for it: "bucket". */
  noun: string
  /** Advice for insufficient credentials. */
  credentials(): string
  /** Reads credentials and creates a client. @throws {StoreError} */
  open(agents: Agents): Promise<Client>
  /** Lists a page of objects whose names begin with `prefix`; the results have full names. */
  page(
    client: Client,
    prefix: string,
    token: string | undefined,
    signal: AbortSignal,
  ): Promise<{ objects: StoredObject[]; next: string | undefined }>
  range(client: Client, name: string, version: string, from: number, to: number, signal: AbortSignal): Promise<Range>
  checksum(client: Client, name: string, object: StoredObject, signal: AbortSignal): Promise<Found>
  /** Explains an error; null for network errors and unknown ones. `name`: the requested object or directory. */
  meaning(error: unknown, name: string): Meaning | null
}

/** Splits a path; ignores repeated and trailing slashes. */
export const split = (path: string) => path.split('/').filter((part) => part !== '')

/** The failure that a status means, unless the code is more specific. */
function failureOf({ status }: Answer): StoreFailure {
  if (status === undefined || status === 408 || status === 429 || status >= 500) return 'unavailable'
  if (status === 404 || status === 410) return 'absent'
  if (status === 401 || status === 403) return 'denied'
  // 416, a range beyond the end: the object was longer when it was listed.
  if (status === 412 || status === 416) return 'changed'
  return 'invalid'
}

/** A request, for messages. */
interface Asked {
  /** Beginning of messages: "s3://models/resnet cannot be listed". */
  text: string
  /** Name of the object or directory. */
  name: string
}

export class Store<Client> implements StoreClient {
  readonly #cloud: Cloud<Client>
  readonly #agents = new Agents()
  readonly #requests: Requests<Client, Asked>

  private constructor(cloud: Cloud<Client>) {
    this.#cloud = cloud
    this.#requests = new Requests(
      () => cloud.open(this.#agents),
      (error, asked) => this.#explain(error, asked),
    )
  }

  /** @throws {StoreError} when credentials are malformed */
  static async open<Client>(cloud: Cloud<Client>): Promise<Store<Client>> {
    const store = new Store(cloud)
    await store.#requests.client()
    return store
  }

  async *list(signal: AbortSignal): AsyncGenerator<StoredObject[]> {
    const { url, path } = this.#cloud.location
    const root = path === '' ? '' : `${path}/`
    const asked = { text: `${url} cannot be listed`, name: path }
    // A repeated token begins an endless cycle. Keeps one token, replaced at ever longer intervals: it will recur.
    let kept: string | undefined
    let token: string | undefined
    for (let pages = 1, keptAt = 1, more = true; more; more = token !== undefined, pages += 1) {
      const { objects, next } = await this.#requests.send(asked, signal, (client, stop) =>
        this.#cloud.page(client, root, token, stop),
      )
      // The repository's own directory may have an object too.
      yield objects
        .filter(({ path: name }) => name !== root)
        .map((object) => ({ ...object, path: object.path.slice(root.length) }))
      token = next
      if (token !== undefined && token === kept) {
        const text = `${this.#cloud.location.endpoint} returns the same pages repeatedly`
        throw new StoreError('invalid', `${asked.text}: ${text}`)
      }
      if (pages < keptAt) continue
      kept = token
      keptAt = 2 * pages
    }
  }

  async read(object: StoredObject, from: number, to: number, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    signal.throwIfAborted()
    if (to <= from) return nothing()
    const { url, endpoint } = this.#cloud.location
    const text = `${url}/${object.path} cannot be read`
    const name = this.#nameOf(object)
    const asked = { text, name }
    const answer = await this.#requests.send(asked, signal, (client, stop) =>
      this.#cloud.range(client, name, object.version, from, to, stop),
    )
    const { stream, version, length, isWithoutMd5 = false } = answer
    const body = bytes(stream, text, endpoint, signal)
    if (isWithoutMd5) object.md5 = null
    // Some storage ignores the requested version and range.
    const other = version !== undefined && version !== object.version
    const isForeign = version === undefined && length === undefined
    if (other || isForeign || (length !== undefined && length !== to - from)) {
      await body.return(undefined)
      stream.destroy()
      if (isForeign) throw this.#explain(new ForeignResponse(), asked)
      if (other) throw new StoreError('changed', `${text}: it differs from the listed object`)
      const sent = `${endpoint} sends ${length} bytes where ${to - from} were requested`
      throw new StoreError('invalid', `${text}: ${sent}: it must support the header Range`)
    }
    return body
  }

  async checksum(object: StoredObject, signal: AbortSignal): Promise<Found> {
    const name = this.#nameOf(object)
    const asked = { text: `the checksum of ${this.#cloud.location.url}/${object.path} cannot be read`, name }
    try {
      return await this.#requests.send(asked, signal, (client, stop) =>
        this.#cloud.checksum(client, name, object, stop),
      )
    } catch (error) {
      // Storage that does not support or permit this request has sent the content, so the load goes on.
      if (!['denied', 'invalid'].includes(storeFailure(error) ?? '')) throw error
      return { missing: (error as Error).message }
    }
  }

  close(): void {
    this.#agents.close()
  }

  #nameOf({ path: name }: StoredObject): string {
    const { path } = this.#cloud.location
    return path === '' ? name : `${path}/${name}`
  }

  #explain(error: unknown, { text, name }: Asked): StoreError {
    const { location, noun } = this.#cloud
    const { bucket } = location
    const unknown: Meaning = { answer: { status: undefined, code: codeOf(error) } }
    const { answer, endpoint = location.endpoint, ...more } = meaningOf(error, name, this.#cloud) ?? unknown
    const { status, code } = answer
    const untrusted = status === undefined && /CERT|SELF_SIGNED|^UNABLE_TO_/.test(code)
    const failure = more.failure ?? (untrusted ? 'invalid' : failureOf(answer))
    const advice = {
      absent: text.endsWith('listed')
        ? `the ${noun} '${bucket}' does not exist at ${endpoint}`
        : 'the object was removed',
      denied: this.#cloud.credentials(),
      changed: 'it differs from the listed object',
      unavailable: status === undefined ? 'check that this machine can reach it' : 'it may respond later',
      invalid: untrusted
        ? 'its certificate is not trusted here: set NODE_EXTRA_CA_CERTS to the file of its authority'
        : `check that '${bucket}' is the name of a ${noun} there`,
      damaged: '',
      local: '',
    }
    const said = status === undefined ? `did not respond (${code})` : `answered ${status} ${code}`
    return new StoreError(failure, `${text}: ${endpoint} ${said}: ${more.advice ?? advice[failure]}`)
  }
}

function meaningOf(error: unknown, name: string, cloud: Pick<Cloud<never>, 'meaning'>): Meaning | null {
  const isForeign = error instanceof ForeignResponse
  const found = isForeign ? { answer: { status: 200, code: 'something else' } } : cloud.meaning(error, name)
  if (found?.answer.status !== 200) return found
  const advice = 'this is not a response of the storage: check that no proxy responds in its place'
  return { ...found, failure: 'unavailable', advice }
}

/** Used for empty ranges, which storage does not support. */
async function* nothing(): AsyncGenerator<Uint8Array> {}
