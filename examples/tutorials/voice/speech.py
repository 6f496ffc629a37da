"""Writes speech.wav: two sentences by espeak-ng with silence before, between and after them, 16 kHz, mono."""

import ctypes
import wave

import espeakng_loader
import numpy as np

RATE = 16_000
speech = ctypes.CDLL(espeakng_loader.get_library_path())
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
pieces = []


@CALLBACK
def keep(samples, count, events):
    if samples:
        pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
    return 0


# 2: the samples go to the callback, and `espeak_Synth` returns after the last one. The result is the rate of the samples.
rate = speech.espeak_Initialize(2, 0, espeakng_loader.get_data_path().encode(), 0)
speech.espeak_SetSynthCallback(keep)
speech.espeak_SetVoiceByName(b"en")


def say(text):
    pieces.clear()
    data = text.encode() + b"\0"
    # 1: the text is UTF-8.
    speech.espeak_Synth(data, len(data), 0, 0, 0, 1, None, None)
    samples = np.concatenate(pieces)
    places = np.arange(0, len(samples), rate / RATE)
    return np.interp(places, np.arange(len(samples)), samples).astype(np.int16)


def silence(seconds):
    return np.zeros(int(seconds * RATE), np.int16)


sound = np.concatenate(
    [silence(1), say("Good morning. This is a test of the server."), silence(2), say("The weather is fine today."), silence(1)]
)
with wave.open("speech.wav", "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(RATE)
    file.writeframes(sound.tobytes())
print(f"{len(sound) / RATE:.1f} s of sound")
