"""The words of the synthetic shop: what its departments sell, who makes it and how it looks.

Pure data. One word of each list makes a title: "Fernhill Rugged Tent, olive".
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


# Each department sells twelve kinds of product.
DEPARTMENTS = {
    "Kitchen": _words(
        """
        Kettle, Skillet, Stockpot, Chef Knife, Cutting Board, Toaster, Blender, Mixing Bowl, Whisk, Apron,
        Spice Rack, Grater
        """
    ),
    "Coffee": _words(
        """
        Espresso Machine, Coffee Grinder, Coffee Press, Pour-Over Set, Mug, Milk Frother, Coffee Scale,
        Filter Paper, Coffee Beans, Travel Mug, Sugar Bowl, Saucer
        """
    ),
    "Bedroom": _words(
        """
        Duvet, Pillow, Mattress, Bed Frame, Bedside Lamp, Blanket, Sheet Set, Wardrobe, Alarm Clock, Quilt,
        Headboard, Robe
        """
    ),
    "Living Room": _words(
        """
        Sofa, Armchair, Coffee Table, Bookcase, Rug, Floor Lamp, Cushion, Throw, Wall Clock, Picture Frame, Vase,
        Candle
        """
    ),
    "Office": _words(
        """
        Desk, Office Chair, Desk Lamp, Monitor Stand, Notebook, Fountain Pen, Pencil Case, Stapler, Planner,
        File Box, Whiteboard, Desk Mat
        """
    ),
    "Garden": _words(
        """
        Spade, Pruner, Watering Can, Planter, Garden Hose, Wheelbarrow, Rake, Bird Feeder, Garden Bench,
        Compost Bin, Seed Tray, Garden Gloves
        """
    ),
    "Workshop": _words(
        """
        Hammer, Screwdriver Set, Cordless Drill, Handsaw, Tape Measure, Spirit Level, Toolbox, Workbench, Clamp,
        Chisel, Sander, Safety Goggles
        """
    ),
    "Camping": _words(
        """
        Tent, Sleeping Bag, Sleeping Pad, Camp Stove, Lantern, Headlamp, Water Filter, Cooler, Camp Chair, Hammock,
        Tarp, Fire Starter
        """
    ),
    "Hiking": _words(
        """
        Backpack, Hiking Boots, Trekking Poles, Rain Jacket, Fleece, Hiking Socks, Water Bottle, Compass, Sun Hat,
        Gaiters, Dry Bag, First Aid Kit
        """
    ),
    "Cycling": _words(
        """
        Road Bike, Bike Helmet, Bike Light, Bike Lock, Floor Pump, Saddle, Cycling Jersey, Bib Shorts, Bottle Cage,
        Pannier, Inner Tube, Chain Oil
        """
    ),
    "Fitness": _words(
        """
        Yoga Mat, Dumbbell, Kettlebell, Resistance Band, Foam Roller, Jump Rope, Running Shoes, Gym Bag, Sports Bra,
        Training Shorts, Pull-Up Bar, Medicine Ball
        """
    ),
    "Audio": _words(
        """
        Headphones, Earbuds, Turntable, Speaker, Amplifier, Microphone, Soundbar, Radio, Audio Cable, Record Sleeve,
        Speaker Stand, Phone Dock
        """
    ),
    "Photo": _words(
        """
        Camera, Lens, Tripod, Camera Bag, Flash, Memory Card, Lens Filter, Photo Album, Camera Strap, Light Stand,
        Gimbal, Drone
        """
    ),
    "Nursery": _words(
        """
        Crib, Stroller, Baby Carrier, High Chair, Baby Monitor, Play Mat, Bottle Warmer, Teether, Night Light,
        Diaper Bag, Swaddle, Bath Tub
        """
    ),
    "Toys": _words(
        """
        Building Blocks, Puzzle, Board Game, Doll, Train Set, Kite, Plush Bear, Paint Set, Modelling Clay, Scooter,
        Marble Run, Toy Kitchen
        """
    ),
    "Pets": _words(
        """
        Dog Bed, Dog Leash, Dog Bowl, Chew Toy, Cat Tree, Litter Box, Cat Tunnel, Pet Brush, Pet Carrier, Aquarium,
        Bird Cage, Hamster Wheel
        """
    ),
}
KINDS = tuple(kind for kinds in DEPARTMENTS.values() for kind in kinds)
KINDS_PER_DEPARTMENT = len(KINDS) // len(DEPARTMENTS)

BRANDS = _words(
    """
    Alderton, Amberly, Arkwright, Ashgrove, Aurevo, Balmore, Bexley, Birchline, Blackfin, Bluewren, Brackwell,
    Bramley, Brightsea, Calder, Carraway, Cindral, Copperleaf, Corven, Dalesman, Delmara, Driftwood, Dunmore,
    Eastvale, Elmstead, Emberfield, Everlow, Falkirk, Fernhill, Finchley, Foxmere, Glenrow, Granby, Greyhaven,
    Halden, Harrow, Hazelmoor, Highmark, Holloway, Ironbridge, Juniper, Kestrel, Kingsley, Larkspur, Linden, Lowell,
    Marlowe, Meridian, Millbrook, Northgate, Oakridge, Orrin, Pemberton, Quillon, Ravenna, Redfern, Rowan,
    Saltmarsh, Silverton, Stonebeck, Tamsin, Thornbury, Umbral, Westerly, Wrenfield
    """
)

# How a product looks: the adjectives of each style.
STYLES = (
    _words("Classic, Heritage, Timeless, Vintage, Traditional, Antique, Handmade, Oak"),
    _words("Modern, Minimal, Sleek, Slim, Urban, Matte, Smart, Studio"),
    _words("Rugged, Trail, Heavy-Duty, Weatherproof, Tough, Compact, Field, Alpine"),
    _words("Bright, Playful, Cosy, Floral, Striped, Pastel, Sunny, Patterned"),
)

COLOURS = _words(
    """
    black, white, grey, navy, olive, sand, sage, brown, red, blue, green, cream, charcoal, teal, rust, mustard,
    ivory, rose, copper, plum, slate, mint, coral, walnut, indigo, amber, lilac, bronze, pine, peach, silver, ochre
    """
)
