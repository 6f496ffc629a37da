/** The platforms that have a package. A test compares src/native/platform.ts with this table. */

/**
 * - `name`: for `--target=`, made of Node's names of platform and architecture.
 * - `suffix`: of the package's and of the module's name.
 * - `triple`: Rust's name. `zig`: the same with the oldest C library that the module supports.
 * - `library`: libonnxruntime in onnxruntime-node.
 */
export const TARGETS = [
  {
    name: 'linux-x64',
    suffix: 'linux-x64-gnu',
    triple: 'x86_64-unknown-linux-gnu',
    zig: 'x86_64-unknown-linux-gnu.2.28',
    glibc: '2.28',
    built: 'libnereid_node.so',
    rustFlags: [],
    library: 'linux/x64/libonnxruntime.so.1',
    manifest: { os: ['linux'], cpu: ['x64'], libc: ['glibc'] },
  },
  {
    name: 'linux-arm64',
    suffix: 'linux-arm64-gnu',
    triple: 'aarch64-unknown-linux-gnu',
    zig: 'aarch64-unknown-linux-gnu.2.28',
    glibc: '2.28',
    built: 'libnereid_node.so',
    rustFlags: [],
    library: 'linux/arm64/libonnxruntime.so.1',
    manifest: { os: ['linux'], cpu: ['arm64'], libc: ['glibc'] },
  },
  {
    name: 'darwin-arm64',
    suffix: 'darwin-arm64',
    triple: 'aarch64-apple-darwin',
    zig: 'aarch64-apple-darwin',
    glibc: null,
    built: 'libnereid_node.dylib',
    // Otherwise the library's name is the path at which it was linked.
    rustFlags: ['-Clink-arg=-Wl,-install_name,@rpath/nereid.darwin-arm64.node'],
    library: 'darwin/arm64/libonnxruntime.1.dylib',
    manifest: { os: ['darwin'], cpu: ['arm64'] },
  },
]

/** The program that runs libraries of backends that were written for Triton. */
export const PROGRAM = 'nereid-backend-host'

/** Files beside the module in packages for Linux: that program, and the library that backends are linked with. */
export const HOST_FILES = [PROGRAM, 'libtritonserver.so']

/** The files of `HOST_FILES` that a target has. */
export const hostFiles = (target) => (target.manifest.os.includes('linux') ? HOST_FILES : [])

/** Rust's and pip's name of a target's processor. */
export const machineName = (target) => target.triple.split('-')[0]

export const packageName = (target) => `@nereid/${target.suffix}`
export const moduleName = (target) => `nereid.${target.suffix}.node`

/** The target of this machine; undefined if it has no package. */
export const ownTarget = () => TARGETS.find((one) => one.name === `${process.platform}-${process.arch}`)
