/** What is alike in the clients of all clouds: names of objects, what is checked of an answer, and the words of errors. A cloud's own file has the rest. */
import type { Readable } from 'node:stream'
import { StoreError, type StoreClient, type StoreFailure, type StoredObject } from '../client.js'
import { Agents, Requests, bytes, codeOf, type Answer } from './requests.js'

/** Where a repository is. */
export interface Location {
  /** As it is written in messages. */
  url: string
  /** What answers: "https://storage.googleapis.com", "S3". */
  endpoint: string
  bucket: string
  /** Without slashes at its ends. */
  path: string
}

/** What an error of a library means. */
export interface Meaning {
  answer: Answer
  /** Where it does not follow from the status. */
  failure?: StoreFailure | undefined
  /** Who answered, where it was not the storage. */
  endpoint?: string
  /** Where it is not what is usually done in that case. */
  advice?: string
}

/** Bytes from `from` to `to`, without `to`. What the storage does not tell is undefined. */
export interface Range {
  stream: Readable
  version: string | undefined
  length: number | undefined
  /** What the list has for an MD5 is none. */
  isWithoutMd5?: boolean
}

/** An answer of success that no storage gives, but a proxy in its place may. Read as a list it would have no models. */
export class Foreign extends Error {}

/** What a cloud's own file does. */
export interface Cloud<Client> {
  location: Location
  /** What the cloud calls that: "bucket". */
  noun: string
  /** What to do when credentials are not enough. */
  credentials(): string
  /** Reads credentials, from files too. @throws {StoreError} */
  open(agents: Agents): Promise<Client>
  /** Objects whose names begin so, with their whole names. */
  page(client: Client, prefix: string, token: string | undefined, signal: AbortSignal): Promise<{ objects: StoredObject[]; next: string | undefined }>
  range(client: Client, name: string, version: string, from: number, to: number, signal: AbortSignal): Promise<Range>
  /** Null when it is an error of the network, or one that nobody thought of. */
  meaning(error: unknown): Meaning | null
}

/** The place in a bucket: repeated slashes are one, and none is at the end. */
export const split = (path: string) => path.split('/').filter((part) => part !== '')

/** What a status says, where the code does not say more. */
function failureOf({ status }: Answer): StoreFailure {
  if (status === undefined || status === 408 || status === 429 || status >= 500) return 'unavailable'
  if (status === 404 || status === 410) return 'absent'
  if (status === 401 || status === 403) return 'denied'
  // A range that is beyond the end: the object was longer when it was listed.
  if (status === 412 || status === 416) return 'changed'
  return 'invalid'
}

export class Store<Client> implements StoreClient {
  readonly #cloud: Cloud<Client>
  readonly #agents = new Agents()
  readonly #requests: Requests<Client>

  private constructor(cloud: Cloud<Client>) {
    this.#cloud = cloud
    this.#requests = new Requests(
      () => cloud.open(this.#agents),
      (error, asked) => this.#explain(error, asked),
    )
  }

  /** @throws {StoreError} when credentials are not written as they have to be */
  static async open<Client>(cloud: Cloud<Client>): Promise<Store<Client>> {
    const store = new Store(cloud)
    await store.#requests.client()
    return store
  }

  async *list(signal: AbortSignal): AsyncGenerator<StoredObject[]> {
    const { url, path } = this.#cloud.location
    const root = path === '' ? '' : `${path}/`
    const asked = `${url} cannot be listed`
    // A token that comes again begins a round without an end. One of those that were is kept, later ones each time: it is in the round some time.
    let kept: string | undefined
    for (let token: string | undefined, pages = 1, keptAt = 1, more = true; more; more = token !== undefined, pages += 1) {
      const { objects, next } = await this.#requests.send(asked, signal, (client, stop) => this.#cloud.page(client, root, token, stop))
      // The directory of the repository itself may have an object, too.
      yield objects.filter(({ path: name }) => name !== root).map((object) => ({ ...object, path: object.path.slice(root.length) }))
      token = next
      if (token !== undefined && token === kept) throw new StoreError('invalid', `${asked}: ${this.#cloud.location.endpoint} gives the same pages again and again`)
      if (pages < keptAt) continue
      kept = token
      keptAt = 2 * pages
    }
  }

  async read(object: StoredObject, from: number, to: number, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    signal.throwIfAborted()
    if (to <= from) return nothing()
    const { url, path, endpoint } = this.#cloud.location
    const asked = `${url}/${object.path} cannot be read`
    const name = path === '' ? object.path : `${path}/${object.path}`
    const { stream, version, length, isWithoutMd5 = false } = await this.#requests.send(asked, signal, (client, stop) => this.#cloud.range(client, name, object.version, from, to, stop))
    const body = bytes(stream, asked, endpoint, signal)
    if (isWithoutMd5) object.md5 = null
    // Not every storage looks at the version and the range that are asked for.
    const other = version !== undefined && version !== object.version
    const isForeign = version === undefined && length === undefined
    if (other || isForeign || (length !== undefined && length !== to - from)) {
      await body.return(undefined)
      stream.destroy()
      if (isForeign) throw this.#explain(new Foreign(), asked)
      if (other) throw new StoreError('changed', `${asked}: it is another object than was listed`)
      throw new StoreError('invalid', `${asked}: ${endpoint} sends ${length} bytes where ${to - from} were asked for: it must know the header Range`)
    }
    return body
  }

  close(): void {
    this.#agents.close()
  }

  #explain(error: unknown, asked: string): StoreError {
    const { location, noun } = this.#cloud
    const { bucket } = location
    const { answer, endpoint = location.endpoint, ...more } = meaningOf(error, this.#cloud) ?? { answer: { status: undefined, code: codeOf(error) } }
    const { status, code } = answer
    const untrusted = status === undefined && /CERT|SELF_SIGNED|^UNABLE_TO_/.test(code)
    const failure = more.failure ?? (untrusted ? 'invalid' : failureOf(answer))
    const advice = {
      absent: asked.endsWith('listed') ? `the ${noun} '${bucket}' does not exist at ${endpoint}` : 'the object is not there any more',
      denied: this.#cloud.credentials(),
      changed: 'it is another object than was listed',
      unavailable: status === undefined ? 'see that it can be reached from here' : 'it may answer later',
      invalid: untrusted ? 'its certificate is not trusted here: set NODE_EXTRA_CA_CERTS to the file of its authority' : `see that '${bucket}' is the name of a ${noun} there`,
      local: '',
    }
    const said = status === undefined ? `gave no answer (${code})` : `answered ${status} ${code}`
    return new StoreError(failure, `${asked}: ${endpoint} ${said}: ${more.advice ?? advice[failure]}`)
  }
}

function meaningOf(error: unknown, cloud: { meaning(error: unknown): Meaning | null }): Meaning | null {
  const found = error instanceof Foreign ? { answer: { status: 200, code: 'something else' } } : cloud.meaning(error)
  return found?.answer.status === 200 ? { ...found, failure: 'unavailable', advice: 'that is not what storage answers: see that no proxy does in its place' } : found
}

/** No storage has a range for no bytes. */
async function* nothing(): AsyncGenerator<Uint8Array> {}
