"""Names the platform of the native module in the tag of the wheel, such as py3-none-manylinux_2_28_x86_64."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = os.environ["NEREID_WHEEL_TAG"]
