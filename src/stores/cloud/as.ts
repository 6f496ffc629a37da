/** Repositories in Azure Blob Storage. */
import type { Readable } from 'node:stream'
import { DefaultAzureCredential, ManagedIdentityCredential, type TokenCredential } from '@azure/identity'
import {
  AnonymousCredential,
  BlobServiceClient,
  StorageSharedKeyCredential,
  type ContainerClient,
} from '@azure/storage-blob'
import { StoreError, type OpenStore } from '../client.js'
import { CREDENTIAL_FILE, credentialFor, strings } from './credential_file.js'
import { codeOf, silence } from './requests.js'
import { ForeignResponse, Store, split, type Cloud, type Location, type Meaning } from './store.js'

const MEMBERS = ['account_str', 'account_key', 'auth_type', 'client_id'] as const
const AUTH_TYPES = ['key', 'managed_identity', 'default']

interface Account {
  account_str?: string | undefined
  account_key?: string | undefined
  auth_type?: string | undefined
  client_id?: string | undefined
}

interface AccountLocation extends Location {
  account: string
  /** Address of an account: `https://account.blob.core.windows.net`, or an emulator's host with the account as path. */
  service: (account: string) => string
}

/**
 * Parses `as://account/container/path`, where the account may be a host; or, for emulators and other clouds,
 * `as://https://account.blob.HOST/container/path` and `as://http://host:port/account/container/path`.
 *
 * @throws {StoreError}
 */
function locate(url: string): AccountLocation {
  const [, scheme, rest = ''] = /^as:\/\/(https?:\/\/)?(.*)$/s.exec(url) ?? []
  const parts = split(rest)
  const host = parts.shift() ?? ''
  const [, named, domain] = /^([^.@]+)(\.blob\..+)$/.exec(host) ?? []
  const isPath = scheme !== undefined && named === undefined
  const account = (isPath ? parts.shift() : (named ?? host)) ?? ''
  const [bucket, ...path] = parts
  const origin = scheme ?? 'https://'
  const service = (name: string) =>
    isPath ? `${origin}${host}/${name}` : `${origin}${name}${domain ?? '.blob.core.windows.net'}`
  if (bucket === undefined || account === '' || host.includes('@') || !URL.canParse(service(account))) {
    const name = host.includes('@') ? 'this' : url
    const forms = 'as://ACCOUNT/CONTAINER/PATH, or as://http://HOST:PORT/ACCOUNT/CONTAINER/PATH'
    throw new StoreError('invalid', `${name} is not a location in Azure Blob Storage: write ${forms}`)
  }
  const whole = `as://${scheme ?? ''}${[host, ...(isPath ? [account] : []), bucket, ...path].join('/')}`
  return { url: whole, endpoint: service(account), bucket, path: path.join('/'), account, service }
}

/** The account and its credentials, from the credential file or the environment. */
async function access(url: string, environment: NodeJS.ProcessEnv): Promise<Account> {
  const entry = await credentialFor('as', url, environment)
  if (entry !== null) return strings(entry, MEMBERS, 'as')
  return {
    account_str: environment.AZURE_STORAGE_ACCOUNT,
    account_key: environment.AZURE_STORAGE_KEY,
    auth_type: environment.AZURE_STORAGE_AUTH_TYPE,
    client_id: environment.AZURE_STORAGE_CLIENT_ID,
  }
}

/** @throws {StoreError} */
function credential(
  account: string,
  { account_key, auth_type, client_id }: Account,
): StorageSharedKeyCredential | AnonymousCredential | TokenCredential {
  switch (auth_type || 'key') {
    case 'key':
      // Anonymous access suffices for a public container.
      return account_key ? new StorageSharedKeyCredential(account, account_key) : new AnonymousCredential()
    case 'managed_identity':
      return client_id ? new ManagedIdentityCredential({ clientId: client_id }) : new ManagedIdentityCredential()
    case 'default':
      return new DefaultAzureCredential()
    default:
      const problem = `AZURE_STORAGE_AUTH_TYPE, or auth_type of ${CREDENTIAL_FILE}, is '${auth_type}'`
      throw new StoreError('invalid', `${problem}: it must be one of ${AUTH_TYPES.join(', ')}`)
  }
}

function cloud(url: string, environment: NodeJS.ProcessEnv): Cloud<ContainerClient> {
  const { account: own, service, ...location } = locate(url)
  const file = environment[CREDENTIAL_FILE]
  let anonymous = false
  return {
    location,
    noun: 'container',
    credentials() {
      const advice = file
        ? `write account_str and account_key for ${location.url} into ${file}`
        : 'set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or AZURE_STORAGE_AUTH_TYPE to managed_identity or ' +
          'default, to credentials that may list and read this container (role Storage Blob Data Reader)'
      return anonymous ? `no key was found: ${advice}` : advice
    },
    async open(agents) {
      const found = await access(url, environment)
      const account = found.account_str || own
      const who = credential(account, found)
      anonymous = who instanceof AnonymousCredential
      // `agent` is an option of the library's core; a proxy overrides it.
      const options = {
        retryOptions: { maxTries: 1 },
        agent: location.endpoint.startsWith('http:') ? agents.http : agents.https,
      }
      const client = new BlobServiceClient(service(account), who as AnonymousCredential, options)
      return client.getContainerClient(location.bucket)
    },
    async page(client, prefix, token, abortSignal) {
      const pages = client
        .listBlobsFlat({ prefix, includeMetadata: true, abortSignal })
        .byPage(token === undefined ? {} : { continuationToken: token })
      const page = await pages.next()
      if (page.done) return { objects: [], next: undefined }
      const { segment, continuationToken } = page.value
      // Undefined, in spite of its type, if the response is not a list.
      if ((segment as typeof segment | undefined)?.blobItems === undefined) throw new ForeignResponse()
      const objects = segment.blobItems.map(
        ({ name, metadata, properties: { contentLength = 0, etag, contentMD5, blobType } }) => ({
          // Directories of a hierarchical namespace are listed without a slash.
          path: metadata?.hdi_isfolder === 'true' ? `${name}/` : name,
          size: contentLength,
          version: bare(etag),
          // The MD5 of other kinds of blobs is not updated by writes; that of a blob without one is an empty array.
          md5: contentMD5?.length && blobType === 'BlockBlob' ? Buffer.from(contentMD5).toString('hex') : null,
        }),
      )
      return { objects, next: continuationToken || undefined }
    },
    async range(client, name, version, from, to, abortSignal) {
      const conditions = { ifMatch: `"${version}"` }
      const options = { abortSignal, conditions, maxRetryRequests: 0 }
      const answer = await client.getBlobClient(name).download(from, to - from, options)
      const { etag, contentLength } = answer
      const stream = answer.readableStreamBody as Readable
      return { stream, version: etag === undefined ? undefined : bare(etag), length: contentLength }
    },
    async checksum() {
      // Azure computes no MD5 of an upload in blocks, and stores no CRC64.
      return { missing: 'it has no Content-MD5' }
    },
    meaning,
  }
}

/** Removes the quotes of an ETag. */
const bare = (tag: string) => tag.replace(/^"|"$/g, '')

const NO_CREDENTIAL =
  /^(?:CredentialUnavailableError|AuthenticationError|AggregateAuthenticationError|AuthenticationRequiredError)$/

function meaning(error: unknown): Meaning | null {
  const { name, statusCode } = (error ?? {}) as { name?: string; statusCode?: number }
  const code = codeOf(error)
  // From @azure/identity: no credential, or a rejected one. Its message lists all attempts on many lines.
  if (name !== undefined && NO_CREDENTIAL.test(name)) {
    const endpoint = "Azure's token service"
    return { answer: { status: statusCode, code: name }, failure: 'denied', endpoint }
  }
  if (statusCode === undefined) return null
  const answer = { status: statusCode, code }
  return code === 'PublicAccessNotPermitted' ? { answer, failure: 'denied' } : { answer }
}

export const open: OpenStore = async (url, environment) => {
  silence()
  return Store.open(cloud(url, environment))
}
