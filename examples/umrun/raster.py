# SPDX-License-Identifier: BSD-3-Clause
"""Windows at random places of a GeoTIFF image that GDAL maps. The script knows nothing of libummap:

    python3 raster.py FILE                     paged by the kernel
    umrun --limit 8M python3 raster.py FILE    paged by libummap, in 8 MiB

The first run makes the image (72 MB). GDAL maps uncompressed images if GTIFF_VIRTUAL_MEM_IO is YES.
"""
import os
import sys

import numpy
from osgeo import gdal

SIDE = 6000
WINDOW = 16


def make_image(path):
    """Write an image of one band with random values."""
    rng = numpy.random.default_rng(1)
    image = gdal.GetDriverByName("GTiff").Create(path, SIDE, SIDE, 1, gdal.GDT_UInt16)
    for y in range(0, SIDE, 1000):
        values = rng.integers(0, 60000, (1000, SIDE)).astype("u2")
        image.GetRasterBand(1).WriteArray(values, 0, y)


def sum_windows(band, count):
    """Return the sum of the values in windows at random places."""
    places = numpy.random.default_rng(2).integers(0, SIDE - WINDOW, (count, 2))
    return sum(int(band.ReadAsArray(int(x), int(y), WINDOW, WINDOW).sum()) for x, y in places)


def main():
    gdal.UseExceptions()
    gdal.SetConfigOption("GTIFF_VIRTUAL_MEM_IO", "YES")
    path = sys.argv[1]
    if not os.path.exists(path):
        make_image(path)
    image = gdal.Open(path)
    print(sum_windows(image.GetRasterBand(1), 500))


main()
