//! The vocabulary of names. Changing a word changes every document: the test that holds the output's hash says
//! so. Nothing here needs escaping in JSON but what is written escaped; a few words are not ASCII on purpose.

/// Words of artists, titles and, in lower case, of invented tags.
#[rustfmt::skip]
pub(super) const WORDS: [&str; 256] = [
    "Amber", "Angel", "Apple", "April", "Arrow", "Ash", "Atlas", "Autumn", "Avenue", "Babylon", "Ballad",
    "Bandit", "Basement", "Bell", "Birch", "Blaze", "Blossom", "Blue", "Bone", "Border", "Bottle",
    "Boulevard", "Brass", "Bridge", "Broken", "Bronze", "Brother", "Burning", "Café", "Candle", "Carnival",
    "Castle", "Cathedral", "Cedar", "Chain", "Chapel", "Cherry", "Chrome", "Cinder", "Circle", "City",
    "Cloud", "Clover", "Coast", "Cobalt", "Comet", "Coral", "Cosmic", "Cotton", "Coyote", "Crimson", "Crow",
    "Crystal", "Dagger", "Daisy", "Dancer", "Dawn", "Déjà", "Delta", "Desert", "Diamond", "Distant",
    "Dragon", "Dream", "Dust", "Eagle", "Early", "Echo", "Eden", "Electric", "Elephant", "Ember", "Emerald",
    "Empire", "Empty", "Engine", "Eternal", "Evening", "Everest", "Evergreen", "Falcon", "Fallen",
    "Feather", "Fever", "Field", "Fire", "Flame", "Flower", "Fog", "Forest", "Forever", "Fortune",
    "Fountain", "Fox", "Frozen", "Galaxy", "Garden", "Gentle", "Ghost", "Giant", "Ginger", "Glass", "Glory",
    "Gold", "Gravity", "Green", "Gypsy", "Hallow", "Harbor", "Harvest", "Haunted", "Heart", "Heaven",
    "Hidden", "Highway", "Hollow", "Honey", "Hotel", "House", "Hunter", "Hurricane", "Iceland", "Indigo",
    "Infinite", "Iris", "Island", "Ivory", "Jade", "January", "Jasmine", "Jungle", "Juniper", "Jupiter",
    "Kingdom", "Lantern", "Lavender", "Lemon", "Letter", "Light", "Lightning", "Lily", "Lion", "Little",
    "Lonely", "Lost", "Lotus", "Lunar", "Machine", "Magnolia", "Maple", "Marble", "March", "Mary", "Meadow",
    "Memory", "Mercury", "Mermaid", "Midnight", "Mirror", "Mist", "Monday", "Monsoon", "Moon", "Morning",
    "Mountain", "Murder", "Music", "Mustang", "Mystic", "Naked", "Narrow", "Neon", "Neptune", "Niño",
    "Night", "Noël", "Northern", "Nothing", "November", "Oak", "Ocean", "October", "Olive", "Onyx",
    "Orange", "Orchid", "Orion", "Owl", "Palace", "Paper", "Paradise", "Parade", "Pearl", "Phantom",
    "Phoenix", "Pilot", "Planet", "Plastic", "Poison", "Prairie", "Prophet", "Purple", "Quiet", "Radio",
    "Rain", "Raven", "Rebel", "Red", "River", "Rose", "Ruby", "Rust", "Sahara", "Saint", "Salt",
    "Satellite", "Scarlet", "Secret", "Signal", "Silent", "Silver", "Sky", "Sleeping", "Smoke", "Snow",
    "Solar", "Southern", "Sparrow", "Spirit", "Star", "Stone", "Straße", "Stranger", "Summer", "Sun",
    "Sunday", "Swan", "Temple", "Thunder", "Tiger", "Train", "Valley", "Violet", "Vulture", "Water",
    "Western", "Whisper", "Wild", "Willow", "Window", "Winter", "Wolf", "Wonder", "Yesterday", "Zephyr",
    "Ångström",
];

/// Tags right below the ten most frequent ones.
#[rustfmt::skip]
pub(super) const FAMILIAR_TAGS: &[&str] = &[
    "alternative rock", "Hip-Hop", "singer-songwriter", "metal", "80s", "90s", "jazz", "chillout",
    "ambient", "folk", "soul", "punk", "instrumental", "classic rock", "hard rock", "indie rock",
    "electronica", "experimental", "acoustic", "beautiful", "british", "american", "male vocalists",
    "chill", "funk", "reggae", "blues", "country", "heavy metal", "rnb", "rap", "oldies", "70s", "60s",
    "Mellow", "sad", "happy", "party", "cover", "live", "awesome", "catchy", "sexy", "trance", "techno",
    "deep house", "trip-hop", "lounge", "latin", "world", "new wave", "post-punk", "progressive rock",
    "psychedelic", "shoegaze", "soundtrack", "death metal", "black metal", "ska", "emo", "grunge",
    "britpop", "disco", "downtempo", "drum and bass", "guitar", "piano", "german", "french", "swedish",
    "japanese", "canadian", "spanish", "love songs", "melancholy", "romantic", "relax", "upbeat",
    "Favourites", "love at first listen", "seen live", "albums I own", "favourite songs", "cool", "epic",
    "fun", "great song", "guilty pleasure", "i love this", "nostalgia", "r&b", "easy listening", "gothic",
    "industrial", "noise", "christian", "bluegrass", "swing", "vocal", "dub",
];

/// What follows some titles.
#[rustfmt::skip]
pub(super) const TITLE_SUFFIXES: &[&str] = &[
    " (Live)", " (Album Version)", " (Remastered)", " (Acoustic)", " (Radio Edit)", " (Demo)", " [Instrumental]",
    " - Remix", " (7\\\" Mix)", " (Don't Stop)",
];
