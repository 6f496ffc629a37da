/** Files of pictures to tensors, with the options of the backend `image`. */

import type { Arrays, Datatype } from './datatypes.js'
import { arrayOf } from './datatypes.js'
import { kindOf } from './errors.js'
import { call, settingsOf } from './vision.js'

/** Width and height in pixels, or one side of a square. */
export type PixelSize = number | `${number}x${number}`

/** Which files are accepted, and the channels of their pixels. */
export interface DecodeOptions {
  /** `rgb` by default. */
  readonly color?: 'rgb' | 'bgr' | 'grey'
  /** Most pixels of a picture, which are compared before any is decoded: 64 Mi by default. */
  readonly pixelsMax?: number
  /** Longest side in pixels: 16384 by default. */
  readonly sideMax?: number
}

/**
 * How a picture becomes a tensor: the parameters of the backend `image` in camelCase. Steps run in this order, and
 * those without an option are left out.
 */
export interface ImagePlan<D extends 'FP32' | 'FP16' | 'UINT8' = 'FP32'> extends DecodeOptions {
  /** Width and height; `shortest:256` resizes the shorter side; `within:640x480` to the largest that fits. */
  readonly resize?: PixelSize | `shortest:${number}` | `within:${PixelSize}`
  /** `bilinear` by default. */
  readonly interpolation?: 'bilinear' | 'bicubic' | 'lanczos' | 'area'
  /** True, the default, resizes as Pillow and torchvision do; false as OpenCV and Ultralytics. */
  readonly antialias?: boolean
  /** Cuts this out of the middle. */
  readonly centerCrop?: PixelSize
  /** Resizes to the largest size that fits, and adds borders. */
  readonly letterbox?: PixelSize
  /** Colour of borders: 114, 114, 114 for `letterbox`, and black for `pad`. */
  readonly letterboxColor?: readonly [number, number, number]
  /** Adds borders only up to multiples of this. */
  readonly stride?: number
  /** Whether `letterbox` makes pictures larger: true by default. */
  readonly enlarge?: boolean
  /** Where `letterbox` has the picture: `center` by default. */
  readonly placement?: 'center' | 'upper_left'
  /** Borders: left, top, right, bottom. */
  readonly pad?: readonly [number, number, number, number]
  /** Values are `(value * scale - mean) / std`: 1/255 by default, and nothing of the three for UINT8. */
  readonly scale?: number | `${number}/${number}`
  /** One per channel: 0 by default. */
  readonly mean?: readonly [number, number, number]
  /** One per channel: 1 by default. */
  readonly std?: readonly [number, number, number]
  /** `nchw` by default. */
  readonly layout?: 'nchw' | 'nhwc'
  /** `FP32` by default. */
  readonly datatype?: D
}

/** A decoded picture, upright, in rows from the top. */
export interface Picture {
  readonly width: number
  readonly height: number
  readonly color: 'rgb' | 'bgr' | 'grey'
  /** A byte per channel and pixel. */
  readonly data: Uint8Array
}

/** Where a picture lies in a tensor: a position in it is `x * scaleX + offsetX` in the tensor, in pixels. */
export interface Placement {
  readonly scaleX: number
  readonly scaleY: number
  readonly offsetX: number
  readonly offsetY: number
  /** Size of the picture. */
  readonly width: number
  readonly height: number
}

/** The tensor of one picture. */
export interface ImageTensor<D extends Datatype = 'FP32'> {
  readonly data: Arrays[D]
  readonly datatype: D
  /** In the order of the layout, without the batch dimension. */
  readonly shape: number[]
  readonly placement: Placement
}

/** Reads JPEG, PNG, WebP, GIF (the first frame) and BMP. */
export interface Images {
  /**
   * Decodes a file.
   *
   * @throws {TritonError} `INVALID_ARG`, if the file is damaged, of another format or too large: the text says which.
   */
  decode(file: Uint8Array, options?: DecodeOptions): Picture
  /**
   * Makes the tensor of a file or a decoded picture. With `into`, it is written there: the elements of one picture in
   * an array of `ctx.alloc`, for example, which saves a copy.
   *
   * @throws {TritonError} as `decode`, and if the picture does not fit the plan.
   * @throws {Error} for a mistake in the plan, or another size of `into`.
   */
  tensor<const D extends 'FP32' | 'FP16' | 'UINT8' = 'FP32'>(
    source: Uint8Array | Picture,
    plan: ImagePlan<D>,
    into?: Arrays[D],
  ): ImageTensor<D>
}

const NONE = Buffer.alloc(0)

export const images: Images = {
  decode(file, options = {}) {
    checkFile(file)
    return call((native) => native.decodePicture(file, settingsOf(options))) as Picture
  },

  tensor<D extends 'FP32' | 'FP16' | 'UINT8'>(
    source: Uint8Array | Picture,
    plan: ImagePlan<D>,
    into?: Arrays[D],
  ): ImageTensor<D> {
    const isFile = source instanceof Uint8Array
    if (!isFile) checkFile((source as Picture | undefined)?.data)
    const to = into === undefined ? NONE : Buffer.from(into.buffer, into.byteOffset, into.byteLength)
    const made = call((native) =>
      native.pictureTensor(isFile ? source : NONE, isFile ? null : source, settingsOf(plan), to),
    )
    const datatype = made.datatype as D
    const array = arrayOf(datatype)
    if (array === null || (into !== undefined && !(into instanceof array)))
      throw new TypeError(`images.tensor: a tensor of ${datatype} needs ${array?.name}, found ${kindOf(into)}`)
    const { data, shape, placement } = made
    const elements = into ?? (data === null ? NONE : new array(data.buffer as ArrayBuffer, data.byteOffset))
    return { data: elements as Arrays[D], datatype, shape, placement }
  },
}

function checkFile(file: unknown): void {
  if (!(file instanceof Uint8Array)) throw new TypeError(`a picture is ${kindOf(file)}, expected a Uint8Array`)
}
