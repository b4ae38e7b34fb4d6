# SPDX-License-Identifier: Apache-2.0
"""The networks in PyTorch, with the names of torchvision's modules, written out here since Debian
has no torchvision. Initial weights are torchvision's, so that their distribution can be compared."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_model import LeNet5, MLP


def philox_words(n, seed, purpose, block, trial):
    """n words of Philox4x32-10 (Salmon et al. 2011), as the trainer numbers them."""
    m = np.uint64(0xFFFFFFFF)
    c = [np.full(-(-n // 4), v, np.uint64) for v in (purpose, block, trial)]
    c.append(np.arange(-(-n // 4), dtype=np.uint64))
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    low = np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> low) ^ c[1] ^ k[0], b & m, (a >> low) ^ c[3] ^ k[1], a & m]
        k = [(k[0] + np.uint64(0x9E3779B9)) & m, (k[1] + np.uint64(0xBB67AE85)) & m]
    return np.stack(c, 1).reshape(-1)[:n]


class Dropout(nn.Module):
    """Drops what the trainer drops: `layer` is the number of its line."""
    stream = (5, 9, 3)  # seed, step, rank

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        if not self.training:
            return x
        seed, step, rank = self.stream
        words = philox_words(x.numel(), seed, 12, self.layer << 8 | rank, step)
        kept = (words >= 2**31).reshape(x.shape)
        return x * torch.from_numpy(kept.astype(np.float32) * 2)


class AlexNet(nn.Module):
    def __init__(self, channels=3, size=32, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2))
        side = size
        for _ in range(3):
            side = (side - 3) // 2 + 1
        self.classifier = nn.Sequential(
            Dropout(13), nn.Linear(256 * side * side, 4096), nn.ReLU(inplace=True),
            Dropout(16), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class VGG11(nn.Module):
    def __init__(self, channels=3, size=32, classes=10):
        super().__init__()
        layers = []
        for width in (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"):
            if width == "M":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512, 4096), nn.ReLU(True), Dropout(18),
            nn.Linear(4096, 4096), nn.ReLU(True), Dropout(21), nn.Linear(4096, classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def conv3(i, o, stride=1):
    return nn.Conv2d(i, o, 3, stride, 1, bias=False)


class OptionA(nn.Module):
    def __init__(self, more, stride):
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x):
        x = x[:, :, ::self.stride, ::self.stride]
        return F.pad(x, (0, 0, 0, 0, self.more // 2, self.more // 2))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, i, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = conv3(i, width, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3(width, width), nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, i, width, stride, downsample):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv3(width, width, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = downsample

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, block, widths, blocks, option_a, channels, classes):
        super().__init__()
        self.n, at = len(widths), widths[0]
        self.conv1, self.bn1 = conv3(channels, at), nn.BatchNorm2d(at)
        for k, (width, n) in enumerate(zip(widths, blocks)):
            stage = []
            for b in range(n):
                stride, out = 2 if k > 0 and b == 0 else 1, width * block.expansion
                down = None
                if option_a and stride != 1:
                    down = OptionA(out - at, stride)
                elif stride != 1 or at != out:
                    down = nn.Sequential(nn.Conv2d(at, out, 1, stride, bias=False),
                                         nn.BatchNorm2d(out))
                stage.append(block(at, width, stride, down))
                at = out
            setattr(self, f"layer{k + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(at, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for k in range(self.n):
            x = getattr(self, f"layer{k + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def make(name, channels, size, classes):
    if name in ("lenet5", "mlp"):
        assert (channels, size, classes) == (1, 28, 10)
        return {"lenet5": LeNet5, "mlp": MLP}[name]()
    if name in ("alexnet", "vgg11"):
        return {"alexnet": AlexNet, "vgg11": VGG11}[name](channels, size, classes)
    kind, widths, blocks, option_a = {
        "resnet20": (BasicBlock, (16, 32, 64), (3, 3, 3), True),
        "resnet18": (BasicBlock, (64, 128, 256, 512), (2, 2, 2, 2), False),
        "resnet50": (Bottleneck, (64, 128, 256, 512), (3, 4, 6, 3), False),
    }[name]
    return ResNet(kind, widths, blocks, option_a, channels, classes)


NAMES = "mlp lenet5 alexnet vgg11 resnet20 resnet18 resnet50".split()
