/** Outputs of networks to boxes and labels, with the options of the backends `boxes` and `labels`. */

import type { PixelSize, Placement } from './images.js'
import type { Tensor } from './tensor.js'
import { type NetworkOutput, call, outputOf, settingsOf } from './vision.js'

/** Options of `boxes.decode`: the parameters of the backend `boxes` in camelCase. */
export interface BoxOptions {
  readonly layout:
    | 'yolov5'
    | 'yolov8'
    | 'yolov10'
    | 'detr'
    | 'rtdetr'
    | 'rtdetr_ultralytics'
    | 'centernet'
    | 'centerface'
    | 'torchvision'
  /** A box has a greater score; 0 to 1. The layout has a default for it and the next three. */
  readonly scoreThreshold?: number
  /** A box is dropped if its intersection over union with a better one is greater; 0 to 1. */
  readonly iouThreshold?: number
  /** Most boxes, those with the greatest scores: up to 3000. */
  readonly boxesMax?: number
  /** Which better boxes have a box dropped: none, those of its class, or all. */
  readonly nms?: 'none' | 'per_class' | 'all_classes'
  /**
   * Whether each class over the threshold makes a box, for the layouts `yolov5` and `yolov8`; else the best class only.
   */
  readonly multiLabel?: boolean
  /** Number of classes: values behind them (masks, key points) are skipped. */
  readonly classes?: number
  /** Size of the network's input, for relative boxes of a network whose input has borders. */
  readonly inputSize?: PixelSize
  /** The placement of `images.tensor`. Without it, boxes are in pixels of the network's input. */
  readonly placement?: Placement
  /** Which picture of a batch; not needed if there is one. */
  readonly row?: number
}

/** Boxes by descending score. */
export interface Boxes {
  /** x1, y1, x2, y2 of each, in pixels. */
  readonly boxes: Float32Array
  readonly scores: Float32Array
  readonly classes: Int32Array
}

/** Reads outputs of detection networks. */
export interface BoxReader {
  /**
   * The boxes of one picture in the outputs of a detection network, in the order of the layout; the shapes may have a
   * batch dimension.
   *
   * @throws {Error} for outputs of another shape, with both shapes, or a mistake in the options.
   */
  decode(outputs: readonly (Tensor | NetworkOutput)[], options: BoxOptions): Boxes
}

export const boxes: BoxReader = {
  decode(outputs, { placement, row, ...options }) {
    const given = outputs.map(outputOf)
    return call((native) => native.decodeBoxes(given, row, placement, settingsOf(options)))
  },
}

/** Options of `labels.top`: the parameters of the backend `labels` in camelCase. */
export interface LabelOptions {
  /** Function that makes scores of the output: `softmax` by default. */
  readonly activation?: 'none' | 'softmax' | 'sigmoid'
  /** Number of classes: 5 by default. */
  readonly topK?: number
  /** Names of the classes. */
  readonly names?: readonly string[]
  /** Which picture of a batch; not needed if there is one. */
  readonly row?: number
}

/** Classes by descending score. */
export interface TopLabels {
  readonly classes: Int32Array
  readonly scores: Float32Array
  /** Names, or the numbers of classes without one. */
  readonly names: string[]
}

/** Reads outputs of classification networks. */
export interface LabelReader {
  /**
   * The classes with the greatest scores in the output of a classification network.
   *
   * @throws {Error} for an output of several rows, unless one is named, or a mistake in the options.
   */
  top(logits: Tensor | NetworkOutput, options?: LabelOptions): TopLabels
}

export const labels: LabelReader = {
  top(logits, { names = [], row, ...options } = {}) {
    const given = outputOf(logits, 0)
    const { classes, scores } = call((native) => native.topClasses(given, row, settingsOf(options)))
    return { classes, scores, names: Array.from(classes, (one) => names[one] ?? String(one)) }
  },
}
