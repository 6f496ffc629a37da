/**
 * Repositories in Google Cloud Storage: two requests of its JSON API, with tokens from Google's auth library. Google's
 * storage library is not used, because its node-fetch leaves connections open when a read ends early.
 */
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { text } from 'node:stream/consumers'
import { GoogleAuth, PassThroughClient, type AuthClient, type JWTInput } from 'google-auth-library'
import { StoreError, type OpenStore } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, readJson } from './credential_file.js'
import { codeOf, silence, type Agents, type Answer } from './requests.js'
import { ForeignResponse, Store, split, type Cloud, type Location, type Meaning } from './store.js'

const ENDPOINT = 'https://storage.googleapis.com'
const SCOPE = 'https://www.googleapis.com/auth/devstorage.read_only'
const APPLICATION = 'GOOGLE_APPLICATION_CREDENTIALS'
/** Requests need no project. Without this option the library looks for one, and runs the program gcloud for that. */
const PROJECT = { projectId: 'none' }

/** @throws {StoreError} */
function locate(url: string, environment: NodeJS.ProcessEnv): Location {
  const [bucket, ...path] = split(/^gs:\/\/(.*)$/s.exec(url)?.[1] ?? '')
  if (bucket === undefined)
    throw new StoreError('invalid', `${url} is not a location in Google Cloud Storage: write gs://BUCKET/PATH`)
  return { url: `gs://${[bucket, ...path].join('/')}`, endpoint: endpointOf(environment), bucket, path: path.join('/') }
}

/** The emulator's address, as Google's libraries for Go and Python read it; else Google's own. */
function endpointOf({ STORAGE_EMULATOR_HOST: host }: NodeJS.ProcessEnv): string {
  if (!host) return ENDPOINT
  return (/^https?:\/\//.test(host) ? host : `http://${host}`).replace(/\/+$/, '').replace(/\/storage\/v1$/, '')
}

/** The credentials of the credential file or the environment. Files are reread at each call. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<AuthClient> {
  const entry = await credentialFor('gs', url, environment)
  if (entry !== null && typeof entry !== 'string')
    throw new StoreError('invalid', `${CREDENTIAL_FILE}: the value of "gs" must be the path of a file`)
  const path = entry ?? environment[APPLICATION]
  if (path) {
    const name = entry === null ? APPLICATION : CREDENTIAL_FILE
    const credentials = (await readJson(path, name)) as JWTInput
    return new GoogleAuth({ ...PROJECT, credentials, scopes: SCOPE }).getClient().catch((error: unknown) => {
      const text = `${path}, which ${name} names, is not a Google credential (${codeOf(error)})`
      throw new StoreError('invalid', text)
    })
  }
  // An emulator of the storage needs a token only if an emulator of the metadata service is named too.
  if (environment.STORAGE_EMULATOR_HOST && !environment.GCE_METADATA_HOST) return new PassThroughClient()
  // Without a metadata service, access is anonymous, which suffices for a public bucket.
  return new GoogleAuth({ ...PROJECT, scopes: SCOPE }).getClient().catch(() => new PassThroughClient())
}

/** No token, or a response with an error status. */
class RequestError extends Error {
  readonly meaning: Meaning

  constructor(meaning: Meaning) {
    super()
    this.meaning = meaning
  }
}

interface Page {
  nextPageToken?: string
  items?: { name: string; size: string; generation: string; md5Hash?: string }[]
}

/** @throws {ForeignResponse} */
function objectOf(text: string): object {
  try {
    const found: unknown = JSON.parse(text)
    if (typeof found === 'object' && found !== null) return found
  } catch {
    // Not JSON: a page of a proxy.
  }
  throw new ForeignResponse()
}

/** @throws {RequestError} */
async function get(
  client: AuthClient,
  agents: Agents,
  url: URL,
  headers: Record<string, string>,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const token = await client.getRequestHeaders(url).catch((error: unknown) => {
    throw new RequestError(withoutToken(error))
  })
  const [send, agent] = url.protocol === 'http:' ? [httpRequest, agents.http] : [httpsRequest, agents.https]
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    send(url, { agent, signal, headers: { ...Object.fromEntries(token), ...headers } })
      .once('response', resolve)
      .on('error', reject)
      .end()
  })
  const { statusCode: status = 0, statusMessage = '' } = answer
  if (status === 200 || status === 206) return answer
  // A single word: notFound, authError.
  const reason = /"reason": ?"(\w+)"/.exec(await text(answer))?.[1]
  throw new RequestError({ answer: { status, code: reason ?? statusMessage } })
}

/** Explains an error of the token service, without its message, which may contain parts of the credentials. */
function withoutToken(error: unknown): Meaning {
  interface TokenError {
    response?: { status?: number; data?: { error?: unknown } }
    cause?: unknown
  }
  const { response, cause } = (error ?? {}) as TokenError
  const name = response?.data?.error
  const found = codeOf(error)
  const isName = typeof name === 'string' && /^\w+$/.test(name)
  const code = isName ? name : found === 'no code' || found === 'GaxiosError' ? codeOf(cause) : found
  const answer: Answer = { status: response?.status, code }
  const isNetwork =
    answer.status === undefined ? /^E[A-Z_]+$/.test(code) && !code.startsWith('ERR_') : answer.status >= 500
  return { answer, endpoint: "Google's token service", failure: isNetwork ? 'unavailable' : 'denied' }
}

function cloud(url: string, environment: NodeJS.ProcessEnv): Cloud<{ auth: AuthClient; agents: Agents }> {
  const location = locate(url, environment)
  const objects = `${location.endpoint}/storage/v1/b/${encodeURIComponent(location.bucket)}/o`
  const file = environment[CREDENTIAL_FILE]
  let anonymous = false
  return {
    location,
    noun: 'bucket',
    credentials() {
      const advice = file
        ? `write the path of a service account's key for ${location.url} into ${file}`
        : `set ${APPLICATION} to the file of a service account's key that may list and read this bucket ` +
          '(role Storage Object Viewer), or give that role to the account of this machine'
      return anonymous ? `no credentials were found: ${advice}` : advice
    },
    async open(agents) {
      const auth = await access(url, environment)
      anonymous = auth instanceof PassThroughClient
      return { auth, agents }
    },
    async page({ auth, agents }, prefix, token, signal) {
      const fields = 'nextPageToken,items(name,size,generation,md5Hash)'
      const query = new URLSearchParams({ prefix, maxResults: '1000', fields })
      if (token !== undefined) query.set('pageToken', token)
      const answer = await get(auth, agents, new URL(`${objects}?${query}`), {}, signal)
      const { items = [], nextPageToken } = objectOf(await text(answer)) as Page
      const listed = items.map(({ name, size, generation, md5Hash }) => {
        const md5 = md5Hash === undefined ? null : Buffer.from(md5Hash, 'base64').toString('hex')
        return { path: name, size: Number(size), version: generation, md5 }
      })
      return { objects: listed, next: nextPageToken || undefined }
    },
    async range({ auth, agents }, name, version, from, to, signal) {
      const headers = {
        range: `bytes=${from}-${to - 1}`,
        // Otherwise an object that is stored compressed would be sent decompressed and without a range.
        'accept-encoding': 'gzip',
      }
      const url = new URL(`${objects}/${encodeURIComponent(name)}?alt=media&ifGenerationMatch=${version}`)
      const stream = await get(auth, agents, url, headers, signal)
      const { 'x-goog-generation': generation, 'content-length': length } = stream.headers
      const bytes = length === undefined ? undefined : Number(length)
      return { stream, version: typeof generation === 'string' ? generation : undefined, length: bytes }
    },
    async checksum({ auth, agents }, name, { version }, signal) {
      // Composite objects, for example parallel uploads, have no MD5 but a CRC32C of the whole.
      const query = `fields=crc32c&ifGenerationMatch=${version}`
      const answer = await get(auth, agents, new URL(`${objects}/${encodeURIComponent(name)}?${query}`), {}, signal)
      const { crc32c } = objectOf(await text(answer)) as { crc32c?: string }
      if (crc32c === undefined) return { missing: 'it has neither MD5 nor CRC32C' }
      return { algorithm: 'CRC32C', digest: Buffer.from(crc32c, 'base64').toString('hex'), partBytes: null }
    },
    meaning: (error) => (error instanceof RequestError ? error.meaning : null),
  }
}

export const open: OpenStore = async (url, environment) => {
  silence()
  return Store.open(cloud(url, environment))
}
